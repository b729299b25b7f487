"""Table 7 from a made result: ratios by round, the fastest backend, verdicts over repeats."""

import math
from pathlib import Path
from statistics import median

import pytest
from fake_results import FakeResults, artifact_slice
from fake_throughput import REPEATS, SHAPES, throughput

from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.figure_job import build_figure
from difftransformer.reporting.formats.markdown import to_markdown
from difftransformer.reporting.measures.throughput import Timings
from difftransformer.reporting.tables.table7 import build


def table(fake: FakeResults, slow: float = 1.0) -> TableDocument:
    throughput(fake, slow)
    return build(artifact_slice("table7"), load_results(fake.results, "tiny"))


def test_ratios_are_taken_by_round_between_the_fastest_backends(small: FakeResults) -> None:
    made = table(small)
    metrics = Timings(load_results(small.results, "tiny")).result.metrics

    def seconds(shape: str, row: str, number: int) -> float:
        found = metrics[f"seconds/{shape}/{row}/blocked/training/{number}"]
        assert found is not None
        return float(found)

    by_round = [
        [seconds(shape, "transformer", n) / seconds(shape, "diff", n) for shape in SHAPES]
        for n in range(REPEATS)
    ]
    overall = made.find("diff", "training_ratio")
    assert overall is not None and overall.value is not None
    assert math.isclose(overall.value, median(math.sqrt(a * b) for a, b in by_round))
    short = made.find("diff", "short_training_ratio")
    assert short is not None
    assert list(short.by_seed().values()) == pytest.approx([one[0] for one in by_round])
    assert made.find("transformer", "training_ratio") is None
    memory = made.find("diff/blocked", "short_training_memory")
    assert memory is not None and memory.value == pytest.approx(25 / 1.1)


@pytest.mark.parametrize(("slow", "verdict"), [(1.0, "confirmed"), (0.8, "contradicted")])
def test_verdicts_speak_of_repeats(slow: float, verdict: str, small: FakeResults) -> None:
    made = table(small, slow)
    assert {one.verdict for one in made.verdicts} == {verdict}
    assert f"over {REPEATS} repeats" in made.verdicts[0].reason
    assert "seed" not in to_markdown(made)


def test_timings_that_are_missing_name_the_command(small: FakeResults) -> None:
    with pytest.raises(UserError, match=r"snakemake results/tiny/throughput\.json"):
        build(artifact_slice("table7"), load_results([], "tiny"))


def test_the_figure_has_published_ratios_beside_ours(small: FakeResults, tmp_path: Path) -> None:
    throughput(small)
    build_figure(artifact_slice("table7", "figure"), small.results, [], tmp_path / "table7")
    assert (tmp_path / "table7.png").stat().st_size > 10_000
