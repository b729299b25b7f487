"""Timings from synthetic results: ratios by round, and the fastest backend."""

import json
import math
from statistics import median

import numpy as np
import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults, rewrite
from fake_throughput import PROCESSES, REPEATS, SHAPES, throughput
from pictures import numbers, picture

from difftransformer.errors import UserError
from difftransformer.evaluations.throughput.report import MODES
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.formats.html import to_html
from difftransformer.reporting.formats.markdown import to_markdown
from difftransformer.reporting.table_job import make_table
from difftransformer.reporting.timing_rounds import TimingResults


def table(fake: FakeResults, slow: float = 1.0) -> TableDocument:
    throughput(fake, slow)
    return make_table(resolved_artifact("table7"), load_results(fake.results, "tiny"))


def test_ratios_are_taken_by_round_between_the_fastest_backends(small: FakeResults) -> None:
    made = table(small)
    metrics = TimingResults(load_results(small.results, "tiny"), "throughput").result.metrics

    def seconds(shape: str, row: str, process: int, number: int) -> float:
        seconds_ = metrics[f"seconds/{shape}/{row}/blocked/training/{process}/{number}"]
        assert seconds_ is not None
        return float(seconds_)

    by_round = [
        [
            [seconds(shape, "transformer", p, n) / seconds(shape, "diff", p, n) for shape in SHAPES]
            for n in range(REPEATS)
        ]
        for p in range(PROCESSES)
    ]
    overall = made.find("diff", "training_ratio")
    assert overall is not None and overall.value is not None
    every = [math.sqrt(a * b) for rounds in by_round for a, b in rounds]
    assert math.isclose(overall.value, median(every))
    # A test sees a process: the median of its rounds, each the mean over shapes.
    assert list(overall.by_seed().values()) == pytest.approx(
        [median(math.sqrt(a * b) for a, b in rounds) for rounds in by_round]
    )
    short = made.find("diff", "short_training_ratio")
    assert short is not None
    assert list(short.by_seed().values()) == pytest.approx(
        [median(ratio[0] for ratio in rounds) for rounds in by_round]
    )
    assert made.find("transformer", "training_ratio") is None
    memory = made.find("diff/blocked", "short_training_memory")
    assert memory is not None and memory.value == pytest.approx(25 / 1.1)


def test_a_skipped_backend_has_no_cell(small: FakeResults) -> None:
    throughput(small)
    (path,) = [ratio for ratio in small.results if ratio.name == "throughput.json"]
    result = json.loads(path.read_text())
    for mode in MODES:
        result["metrics"][f"tokens_per_second/short/diff/blocked/{mode}"] = None
    rewrite(path, json.dumps(result))
    made = make_table(resolved_artifact("table7"), load_results(small.results, "tiny"))
    assert made.find("diff/blocked", "short_training") is None
    assert made.find("diff/sdpa", "short_training") is not None
    assert made.find("diff", "training_ratio") is not None


def test_each_row_has_its_own_fastest_backend_and_rounds_stay_together(small: FakeResults) -> None:
    start, slower = "short/{}/{}/training", [9.0] * PROCESSES
    ours, theirs = [2.0, 4.0, 3.0, 8.0, 5.0], [1.0, 1.0, 3.0, 2.0, 2.5]
    throughput(
        small,
        changes={
            start.format("diff", "sdpa"): ours,
            start.format("diff", "blocked"): [0.1, *slower[1:]],  # fast in one process alone
            start.format("transformer", "sdpa"): slower,
            start.format("transformer", "blocked"): theirs,
        },
    )
    made = make_table(resolved_artifact("table7"), load_results(small.results, "tiny"))
    ratio, speed = (made.find("diff", f"short_training{end}") for end in ("_ratio", ""))
    assert ratio is not None and speed is not None
    assert list(ratio.by_seed().values()) == pytest.approx([0.5, 0.25, 1.0, 0.25, 0.5])
    assert (ratio.value, ratio.text) == (0.5, "0.500 (0.250 to 0.500)")
    assert (ratio.std, ratio.ci_low, ratio.ci_high, ratio.n) == (None, None, None, PROCESSES)
    assert list(speed.by_seed().values()) == pytest.approx(
        [128 * 16 / expected_ratio for expected_ratio in ours]
    )


def test_a_number_opens_to_its_processes(small: FakeResults) -> None:
    made = table(small)
    assert "seed" not in to_markdown(made)
    assert "process 0: " in to_html(made) and "seed 0: " not in to_html(made)


def test_timings_that_are_missing_name_the_command(small: FakeResults) -> None:
    with pytest.raises(UserError, match=r"snakemake results/tiny/timings/throughput\.json"):
        make_table(resolved_artifact("table7"), load_results([], "tiny"))


def test_the_figure_has_published_ratios_beside_ours(small: FakeResults) -> None:
    throughput(small)
    artifact = resolved_artifact("table7", "figure")
    timings = TimingResults(load_results(small.results, "tiny"), "throughput")
    assert artifact.paper is not None
    ours, theirs = (artifact.paper.rows[row].values for row in ("diff", "transformer"))
    ratios = {name: float(value) / float(theirs[name]) for name, value in ours.items()}
    for axes, mode in zip(picture("table7", small).axes, MODES, strict=True):
        published = [y for o in axes.lines if o.get_mfc() == "white" for y in numbers(o)]
        assert published == [ratio for name, ratio in ratios.items() if name.endswith(mode)]
        marks = {y for line in axes.lines for y in numbers(line)}
        for shape in SHAPES:
            assert np.median(timings.ratios(shape, "diff", "transformer", mode)) in marks
    assert f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f}" in artifact.alt


def test_a_round_without_its_seconds_is_refused(small: FakeResults) -> None:
    throughput(small, changes={"short/diff/sdpa/training": [1.0, None]})
    timings = TimingResults(load_results(small.results, "tiny"), "throughput")
    with pytest.raises(UserError, match=r"diff/sdpa/training/1/0 is undefined"):
        timings.fastest("short", "diff", "training")


def test_timings_with_other_settings_ask_for_a_rerun(small: FakeResults) -> None:
    throughput(small)
    results = load_results(small.results, "tiny")
    config = results.evaluations["throughput", "throughput", 0].settings["config"]
    config["variants"] = config.pop("trained_sizes")
    with pytest.raises(UserError, match=r"^throughput-.*settings of throughput.*rerun"):
        TimingResults(results, "throughput")
