"""Settings from --config and --configfile are read only by the strict parser."""

import pytest
from small_workflow import Checkout


def _expanding(start: str, many: str) -> str:
    """Ten aliases in each of eight levels: a hundred million values in 800 bytes."""
    lines = [f"a0: &a0 {start}", *(f"a{i}: &a{i} {many.format(f'*a{i - 1}')}" for i in range(1, 9))]
    return "\n".join(lines)


_LIST = "[" + ", ".join(["{0}"] * 10) + "]"
_MAPPING = "{{" + ", ".join(f"k{i}: {{0}}" for i in range(10)) + "}}"
_LARGE = "its aliases expand to over 100000 values"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (
            "overrides: {diff: {}}\noverrides: {dint: {}}\n",
            (),
            "mine.yaml: line 2: key 'overrides' stands twice",
        ),
        ("seeds: [010, 1:30]\n", (), "mine.yaml: line 1: YAML reads 010 as 8"),
        ("scale: smoke\n", ("seeds=010",), "--config seeds: line 1: YAML reads 010 as 8"),
        (_expanding("[x]", _LIST), (), f"mine.yaml: line 6: {_LARGE}"),
        (_expanding("{x: 1}", _MAPPING), (), f"mine.yaml: line 6: {_LARGE}"),
        (
            "scale: smoke\n",
            ("overrides={" + _expanding("{x: 1}", _MAPPING).replace("\n", ", ") + "}",),
            f"--config overrides: line 1: {_LARGE}",
        ),
        ("__use_yte__: true\nx: ?open('ran', 'w')\n", (), "mine.yaml: __use_yte__: unknown key"),
    ],
)
def test_settings_that_snakemake_would_misread_are_a_one_line_error(
    text: str, words: tuple[str, ...], message: str, finished: Checkout
) -> None:
    file = finished.folder / "mine.yaml"
    file.write_text(text)
    options = ("--config", *words) if words else ()
    ended = finished.snakemake("-n", "--configfile", "mine.yaml", *options, check=False)
    file.unlink()
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert ended.returncode != 0 and message in line
    assert not (finished.folder / "ran").exists()  # no expression of a settings file is run
