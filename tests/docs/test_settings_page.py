"""The page of settings is generated from the settings' types, defaults and meanings."""

import runpy
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from difftransformer.config.base import Settings, setting


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


class FileSettings(Settings):
    """Settings of one file."""

    eps: float = setting(1e-8, meaning="Floor.")
    lr: float = setting(0.5, meaning="Peak\n rate.", gt=0, le=1)
    limit: int | None = setting(None, meaning="Upper bound.")
    warm: Warm = setting(Warm(), meaning="The rise.")
    source: Annotated[Files | Rows, Field(discriminator="kind")] = setting(meaning="Input.")
    mixture: dict[str, Warm] = setting({}, meaning="Several rises.")
    parts: list[Warm] | None = setting(None, meaning="A list of rises.")


class Named(Settings):
    runs: dict[str, FileSettings] = setting(meaning="Settings by name.")


@pytest.fixture(scope="module")
def page(repository: Path) -> dict[str, Any]:
    return runpy.run_path(str(repository / "docs" / "settings_page.py"))


def items(page: dict[str, Any], kind: type) -> dict[str, str]:
    """Dotted path -> what the page says of it."""
    return dict(line.removeprefix("- `").split("` ", 1) for line in page["settings_of"](kind))


def test_every_setting_is_an_item_with_its_dotted_path(page: dict[str, Any]) -> None:
    assert list(items(page, FileSettings)) == [
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


def test_an_item_has_type_unit_default_meaning_and_source(page: dict[str, Any]) -> None:
    descriptions = items(page, FileSettings)
    assert descriptions["warm.steps"] == (
        "(integer, steps, default `10`): How long the rise takes. *Source: sec. 3.1.*"
    )
    assert descriptions["lr"] == "(number (> 0, ≤ 1), default `0.5`): Peak rate."
    assert descriptions["eps"] == "(number, default `1.0e-08`): Floor.", (
        "YAML reads 1e-08 as a text"
    )
    assert descriptions["limit"].startswith("(integer or null, default `null`)")
    assert descriptions["warm"].startswith("(group, default as below)")
    assert descriptions["source{kind=files}.kind"].startswith("(`files`, required)")
    assert descriptions["source{kind=files}.glob"].endswith(": Which files | patterns.")
    assert descriptions["source{kind=rows}.counts"].startswith(
        "(list of integer, rows, default `[2, 4]`)"
    )
    assert descriptions["mixture"].startswith("(mapping to group, default `{}`)")


def test_a_file_of_named_entries_is_expanded_under_a_placeholder(page: dict[str, Any]) -> None:
    descriptions = items(page, Named)
    assert "runs.<name>.warm.steps" in descriptions
    assert "runs.<name>.source{kind=rows}.counts" in descriptions


def test_own_settings_precede_inherited_ones(page: dict[str, Any]) -> None:
    assert list(items(page, Warmer)) == ["peak", "steps"]


def test_the_page_has_every_kind_of_file_variant_and_method(page: dict[str, Any]) -> None:
    text = page["settings_page"]()
    for words in (
        "## `config.yaml`", "- `scale` (text, default `tiny`)", "suite of kind `needles`",
        "with variant `diff_v1`", "with method `dex`", "- `datasets.<name>.base` (",
    ):  # fmt: skip
        assert words in text, words
