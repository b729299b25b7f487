"""Evaluations are discovered as folders; a broken one gives a one-line error."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from difftransformer.config import evaluations
from difftransformer.errors import ConfigError

VALID_FILES = {
    "__init__.py": "",
    "settings.py": "class Suite:\n    pass\n",
    "measure.py": "def measure(suite, context):\n    return {}\n",
    "report.py": "def section(context):\n    return None\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the evaluations."""
    monkeypatch.setattr(evaluations, "_FOLDER", tmp_path)
    evaluations.evaluations.cache_clear()
    yield tmp_path
    evaluations.evaluations.cache_clear()


def make(folder: Path, **changes: str | None) -> None:
    """Write the folder `entropy` with changed files; None leaves one out."""
    (folder / "entropy").mkdir()
    for name, text in (VALID_FILES | {f"{key}.py": text for key, text in changes.items()}).items():
        if text is not None:
            (folder / "entropy" / name).write_text(text)


def test_every_folder_is_an_evaluation(folder: Path) -> None:
    make(folder)
    (folder / "__pycache__").mkdir()
    (folder / "notes.txt").write_text("")
    assert evaluations.evaluations() == ("entropy",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"__init__": None}, "evaluations/entropy: lacks __init__.py"),
        ({"settings": None}, "evaluations/entropy: lacks settings.py"),
        ({"report": None}, "evaluations/entropy: lacks report.py"),
        ({"measure": None}, "evaluations/entropy: measure.py has no function measure"),
        ({"measure": "def mesure():\n    pass\n"}, "measure.py has no function measure"),
        ({"settings": "x = 1\n"}, "settings.py has no class Suite for what is measured"),
        (
            {"report": "x = 1\n"},
            "entropy/report.py: has neither section(context) nor figure(context)",
        ),
    ],
)
def test_an_error_names_what_the_folder_lacks(
    folder: Path, changes: dict[str, str | None], message: str
) -> None:
    make(folder, **changes)
    with pytest.raises(ConfigError) as caught:
        evaluations.evaluations()
    line = str(caught.value)
    assert message in line and "\n" not in line
    assert line.endswith("see docs/adding_an_evaluation.md")


def test_a_folder_with_broken_python_is_one_line(folder: Path) -> None:
    make(folder, report="def section(context:\n")
    with pytest.raises(ConfigError, match=r"entropy/report\.py:1: not valid Python: ") as caught:
        evaluations.evaluations()
    assert "\n" not in str(caught.value)


KIND = """
    kind: Literal["sinks"] = setting(meaning="Which.")"""


@pytest.mark.parametrize(
    ("base", "body", "message"),
    [
        ("WindowSuite", "pass", 'Suite needs the line `kind: Literal["sinks"] = ...`'),
        ("Suite", KIND, "Suite has no reading(self, model, longest)"),
    ],
)
def test_an_error_names_what_the_suite_lacks(
    base: str, body: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ModuleType("settings")
    code = f"""
from typing import Literal
from difftransformer.config import evaluation
from difftransformer.config.base import setting
class Suite(evaluation.{base}):
    {body.strip()}
"""
    exec(code, vars(settings))
    monkeypatch.setattr(evaluations, "import_module", lambda name: settings)
    with pytest.raises(ConfigError) as caught:
        evaluations._read.__wrapped__("sinks")
    assert str(caught.value) == (
        f"evaluations/sinks/settings.py: {message}; see docs/adding_an_evaluation.md"
    )


def test_a_misspelt_evaluation_suggests_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="here: unknown evaluation 'sink'; did you mean 'sinks'"):
        evaluations.evaluation("sink", "here")
    with pytest.raises(ConfigError, match="kind: unknown kind 'recal'; did you mean 'recall'"):
        evaluations.suite_class("recal", "kind")
    with pytest.raises(ConfigError, match=r"unknown kind '\['recall'\]'"):
        evaluations.suite_class(["recall"], "kind")
    with pytest.raises(ConfigError, match="unknown kind 'throughput'"):
        evaluations.suite_class("throughput", "kind")  # it has timings and no suite
