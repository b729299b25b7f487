"""Evaluations are found by listing folders; one that breaks the contract is named in one line."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from difftransformer.config import evaluations as found
from difftransformer.errors import ConfigError

WHOLE = {
    "__init__.py": "",
    "settings.py": "class Suite:\n    pass\n",
    "measure.py": "def measure(suite, context):\n    return {}\n",
    "report.py": "def section(context):\n    return None\n",
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in place of the evaluations."""
    monkeypatch.setattr(found, "_FOLDER", tmp_path)
    found.evaluations.cache_clear()
    yield tmp_path
    found.evaluations.cache_clear()


def make(room: Path, **changes: str | None) -> None:
    """Write the folder `entropy` with changed files; None leaves one out."""
    (room / "entropy").mkdir()
    for name, text in (WHOLE | {f"{key}.py": text for key, text in changes.items()}).items():
        if text is not None:
            (room / "entropy" / name).write_text(text)


def test_what_has_a_folder_is_a_evaluation(room: Path) -> None:
    make(room)
    (room / "__pycache__").mkdir()
    (room / "notes.txt").write_text("")
    assert found.evaluations() == ("entropy",)


@pytest.mark.parametrize(
    ("changes", "said"),
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
def test_a_folder_says_what_it_lacks(room: Path, changes: dict[str, str | None], said: str) -> None:
    make(room, **changes)
    with pytest.raises(ConfigError) as caught:
        found.evaluations()
    line = str(caught.value)
    assert said in line and "\n" not in line
    assert line.endswith("see docs/adding_an_evaluation.md")


def test_a_folder_with_broken_python_is_one_line(room: Path) -> None:
    make(room, report="def section(context:\n")
    with pytest.raises(ConfigError, match=r"entropy/report\.py:1: not valid Python: ") as caught:
        found.evaluations()
    assert "\n" not in str(caught.value)


KIND = """
    kind: Literal["sinks"] = setting(meaning="Which.")"""


@pytest.mark.parametrize(
    ("base", "body", "said"),
    [
        ("WindowSuite", "pass", 'Suite needs the line `kind: Literal["sinks"] = ...`'),
        ("Suite", KIND, "Suite has no reading(self, model, longest)"),
    ],
)
def test_a_suite_says_what_it_lacks(
    base: str, body: str, said: str, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(found, "import_module", lambda name: settings)
    with pytest.raises(ConfigError) as caught:
        found._read.__wrapped__("sinks")
    assert str(caught.value) == (
        f"evaluations/sinks/settings.py: {said}; see docs/adding_an_evaluation.md"
    )


def test_a_misspelt_evaluation_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="here: unknown evaluation 'sink'; did you mean 'sinks'"):
        found.evaluation("sink", "here")
    with pytest.raises(ConfigError, match="kind: unknown kind 'recal'; did you mean 'recall'"):
        found.suite_class("recal", "kind")
    with pytest.raises(ConfigError, match=r"unknown kind '\['recall'\]'"):
        found.suite_class(["recall"], "kind")
    with pytest.raises(ConfigError, match="unknown kind 'throughput'"):
        found.suite_class("throughput", "kind")  # it has timings and no suite
