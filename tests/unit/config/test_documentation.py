"""The generated schema and page say what the models say, and always the same."""

import json
from typing import Annotated, Literal

import jsonschema
import pytest
from pydantic import Field, RootModel, ValidationError

from difftransformer.config.base import Settings, setting
from difftransformer.config.documentation import config_readme, config_schema


class Warm(Settings):
    steps: int = setting(10, meaning="How long the rise takes.", unit="steps", source="sec. 3.1")


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
    mixture: dict[str, Warm] = setting(default_factory=dict, meaning="Several rises.")
    parts: list[Warm] | None = setting(None, meaning="A list of rises.")


class Named(RootModel[dict[str, Whole]]):
    pass


def table(page: str, heading: str) -> dict[str, list[str]]:
    section = page.split(f"## `{heading}`")[1].split("\n## ", maxsplit=1)[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.replace("\\|", "/").split("|")[1:-1]] for row in rows]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_setting_is_a_row_with_its_dotted_path() -> None:
    rows = table(config_readme({"whole.yaml": Whole}), "whole.yaml")
    assert list(rows) == [
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


def test_a_row_shows_type_default_unit_meaning_and_source() -> None:
    rows = table(config_readme({"whole.yaml": Whole}), "whole.yaml")
    assert rows["warm.steps"] == [
        "integer",
        "`10`",
        "steps",
        "How long the rise takes.",
        "sec. 3.1",
    ]
    assert rows["lr"] == ["number (> 0, ≤ 1)", "`0.5`", "", "Peak rate.", ""]
    assert rows["eps"][1] == "`1.0e-08`", "YAML reads 1e-08 as a text"
    assert rows["limit"][:2] == ["integer or null", "`null`"]
    assert rows["warm"][:2] == ["group", "as below"]
    assert rows["source{kind=files}.kind"][:2] == ["`files`", "required"]
    assert rows["source{kind=files}.glob"][3] == "Which files / patterns."
    assert rows["source{kind=rows}.counts"][:3] == ["list of integer", "`[2, 4]`", "rows"]
    assert rows["mixture"][:2] == ["mapping to group", "`{}`"]


def test_a_file_of_named_entries_is_expanded_under_a_placeholder() -> None:
    rows = table(config_readme({"runs.yaml": Named}), "runs.yaml")
    assert "<name>.warm.steps" in rows
    assert "<name>.source{kind=rows}.counts" in rows


def test_page_is_ordered_by_file_and_does_not_depend_on_the_order_given() -> None:
    page = config_readme({"b.yaml": Warm, "a.yaml": Whole})
    assert page == config_readme({"a.yaml": Whole, "b.yaml": Warm})
    assert page.index("`a.yaml`") < page.index("`b.yaml`")
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
    assert schemas["runs.yaml"]["additionalProperties"] == {"$ref": "#/$defs/Whole"}


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
