"""The generated schema and page say what the models say, and always the same."""

import json
from typing import Annotated, Literal

import jsonschema
import pytest
from pydantic import Field, ValidationError

from difftransformer.config.base import Settings, setting
from difftransformer.config.documentation import config_readme, config_schema


class Warm(Settings):
    steps: int = setting(10, meaning="How long the rise takes.", unit="steps", source="sec. 3.1")


class Warmer(Warm):
    peak: float = setting(0.5, meaning="How high.")


class Files(Settings):
    """Text from files."""

    kind: Literal["files"]
    glob: str = setting(meaning="Which files | patterns.")


class Rows(Settings):
    kind: Literal["rows"]
    counts: list[int] = setting([2, 4], meaning="Numbers of rows.", unit="rows")


class Whole(Settings):
    """What a whole file holds.

    A second paragraph that the page leaves out.
    """

    eps: float = setting(1e-8, meaning="Floor.")
    lr: float = setting(0.5, meaning="Peak\n rate.", gt=0, le=1)
    limit: int | None = setting(None, meaning="Upper bound.")
    warm: Warm = setting(Warm(), meaning="The rise.")
    source: Annotated[Files | Rows, Field(discriminator="kind")] = setting(meaning="Input.")
    mixture: dict[str, Warm] = setting({}, meaning="Several rises.")
    parts: list[Warm] | None = setting(None, meaning="A list of rises.")


class Named(Settings):
    runs: dict[str, Whole] = setting(meaning="Wholes by name.")


def items(page: str, heading: str) -> dict[str, str]:
    """Dotted path -> what the page says of it."""
    section = page.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    listed = section.replace("\n  ", " ").split("\n- ")[1:]
    return {key: said.strip() for key, said in (one[1:].split("` ", 1) for one in listed)}


def test_every_setting_is_an_item_with_its_dotted_path() -> None:
    assert list(items(config_readme({"whole.yaml": Whole}), "whole.yaml")) == [
        "eps",
        "lr",
        "limit",
        "warm",
        "warm.steps",
        "source",
        "source{kind=files}.kind",
        "source{kind=files}.glob",
        "source{kind=rows}.kind",
        "source{kind=rows}.counts",
        "mixture",
        "mixture.<name>.steps",
        "parts",
        "parts[].steps",
    ]


def test_an_item_says_type_unit_default_meaning_and_source() -> None:
    said = items(config_readme({"whole.yaml": Whole}), "whole.yaml")
    assert said["warm.steps"] == (
        "(integer, steps, default `10`): How long the rise takes. *Source: sec. 3.1.*"
    )
    assert said["lr"] == "(number (> 0, ≤ 1), default `0.5`): Peak rate."
    assert said["eps"] == "(number, default `1.0e-08`): Floor.", "YAML reads 1e-08 as a text"
    assert said["limit"].startswith("(integer or null, default `null`)")
    assert said["warm"].startswith("(group, default as below)")
    assert said["source{kind=files}.kind"].startswith("(`files`, required)")
    assert said["source{kind=files}.glob"].endswith(": Which files | patterns.")
    assert said["source{kind=rows}.counts"].startswith("(list of integer, rows, default `[2, 4]`)")
    assert said["mixture"].startswith("(mapping to group, default `{}`)")


def test_a_file_of_named_entries_is_expanded_under_a_placeholder() -> None:
    said = items(config_readme({"runs.yaml": Named}), "runs.yaml")
    assert "runs.<name>.warm.steps" in said
    assert "runs.<name>.source{kind=rows}.counts" in said


def test_own_settings_stand_before_inherited_ones() -> None:
    assert list(items(config_readme({"x": Warmer}), "x")) == ["peak", "steps"]


def test_the_page_opens_with_what_it_is_given_and_keeps_the_order_of_files() -> None:
    page = config_readme({"b.yaml": Warm, "a.yaml": Whole}, "\nEdit b.yaml.\n")
    assert page.startswith("# Settings\n\nEdit b.yaml.\n\n")
    assert page.index("## b.yaml") < page.index("## a.yaml")
    assert "What a whole file holds." in page
    assert "second paragraph" not in page


def test_schema_is_plain_json_with_units_and_closed_keys() -> None:
    schemas = config_schema({"whole.yaml": Whole, "runs.yaml": Named})
    assert list(schemas) == ["runs.yaml", "whole.yaml"]
    assert json.loads(json.dumps(schemas)) == schemas
    whole = schemas["whole.yaml"]
    assert whole["title"] == "whole.yaml"
    assert whole["$schema"].startswith("https://json-schema.org/")
    assert whole["additionalProperties"] is False
    assert whole["$defs"]["Warm"]["properties"]["steps"]["unit"] == "steps"
    assert "source" in whole["required"]
    runs = schemas["runs.yaml"]["properties"]["runs"]
    assert runs["additionalProperties"] == {"$ref": "#/$defs/Whole"}


@pytest.mark.parametrize(
    "value",
    [
        {"source": {"kind": "files", "glob": "*"}},
        {"source": {"kind": "rows", "counts": [1]}, "lr": 0.1, "parts": [{"steps": 3}]},
    ],
)
def test_schema_accepts_what_the_model_accepts(value: dict[str, object]) -> None:
    Whole.model_validate(value)
    jsonschema.validate(value, config_schema({"w": Whole})["w"])


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"source": {"kind": "fils", "glob": "*"}},
        {"source": {"kind": "files", "glob": "*"}, "lr": 2.0},
        {"source": {"kind": "files", "glob": "*"}, "unknown": 1},
    ],
)
def test_schema_refuses_what_the_model_refuses(value: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Whole.model_validate(value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, config_schema({"w": Whole})["w"])
