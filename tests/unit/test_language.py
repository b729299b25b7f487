"""The check of the language finds what it forbids and accepts exempt lines."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SPEC = spec_from_file_location("language", Path(__file__).parents[1] / "language.py")
assert SPEC is not None and SPEC.loader is not None
language = module_from_spec(SPEC)
SPEC.loader.exec_module(language)


def test_vague_names_arguments_and_attributes_are_counted() -> None:
    source = "def f(known):\n    return known.one\n\nplace = f(3)  # wording: ok\n"
    assert language.vague_count(source) == {"known": 2, "one": 1}


@pytest.mark.parametrize(
    ("name", "errors"), [("tokenise", 1), ("optimizer", 0), ("Colours", 1), ("judgement", 1)]
)
def test_identifiers_are_spelled_as_in_pytorch(name: str, errors: int) -> None:
    assert len([*language.british(f"class {name}: ...\n", Path("a.py"))]) == errors
    assert not [*language.british(f"class {name}: ...  # wording: ok\n", Path("a.py"))]


@pytest.mark.parametrize(
    ("text", "errors"),
    [("It starts afresh on the card.", 2), ("A model card.", 0), ("scaling laws", 0)],
)
def test_phrases_are_named_with_a_better_one(text: str, errors: int) -> None:
    assert len([*language.phrases(iter([(1, text)]), Path("a.md"))]) == errors
    assert not [*language.phrases(iter([(1, f"{text} <!-- wording: ok -->")]), Path("a.md"))]
