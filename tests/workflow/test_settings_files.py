"""Settings by --config and --configfile reach the plan by the strict reader alone."""

import pytest
from small_workflow import Checkout


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("set: {diff: {}}\nset: {dint: {}}\n", (), "mine.yaml: line 2: key 'set' stands twice"),
        ("seeds: [010, 1:30]\n", (), "mine.yaml: line 1: YAML reads 010 as 8"),
        ("scale: smoke\n", ("seeds=010",), "--config seeds: line 1: YAML reads 010 as 8"),
    ],
)
def test_what_snakemake_would_misread_is_one_line(
    text: str, words: tuple[str, ...], said: str, finished: Checkout
) -> None:
    file = finished.folder / "mine.yaml"
    file.write_text(text)
    given = ("--config", *words) if words else ()
    ended = finished.snakemake("-n", "--configfile", "mine.yaml", *given, check=False)
    file.unlink()
    (line,) = [one for one in ended.stderr.splitlines() if one.startswith("error:")]
    assert ended.returncode != 0 and said in line
