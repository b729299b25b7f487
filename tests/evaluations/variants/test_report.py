"""The table of variants: speed, scores and proxy runs."""

from statistics import median

from fake_configs import resolved_artifact
from fake_results import FakeResults
from fake_throughput import PROCESSES, throughput
from pictures import picture

from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_job import make_table

METRIC_KEY = "trained_sizes/{}/{}/training"


def variants(fake: FakeResults) -> TableDocument:
    return make_table(resolved_artifact("variants"), load_results(fake.results, "tiny"))


def test_a_variant_has_its_speed_of_training_and_the_median_of_its_ratios(
    fake: FakeResults,
) -> None:
    ours, theirs = [2.0, 4.0, 3.0, 8.0, 5.0], [1.0, 1.0, 3.0, 2.0, 2.5]
    slow = [9.0] * PROCESSES
    changes = {
        METRIC_KEY.format("dint", "sdpa"): ours,
        METRIC_KEY.format("dint", "blocked"): slow,
        METRIC_KEY.format("transformer_gqa", "sdpa"): slow,
        METRIC_KEY.format("transformer_gqa", "blocked"): theirs,
    }
    throughput(fake, changes=changes)
    first, second = variants(fake).sections
    speed, ratio = (first.cell("dint", name) for name in ("speed", "speed_ratio"))
    assert speed is not None and ratio is not None
    assert speed.value == median(64 * 8 / row for row in ours)
    assert ratio.value == 0.5 and ratio.text == "0.50"
    assert first.cell("transformer_gqa", "speed_ratio") is None
    assert second.cell("dint_equal_flops", "speed") is not None
    assert any("at 64, batch of 8" in note and "CPU time" in note for note in first.notes)


def test_a_scale_that_times_no_variants_has_no_column_of_speed(fake: FakeResults) -> None:
    artifact = resolved_artifact("variants")
    for part in artifact.sections:
        for row in part.rows:
            row.facts["timed"] = False
    made = make_table(artifact, load_results(fake.results, "tiny"))
    assert all("speed" not in column.id for part in made.sections for column in part.columns)


def test_the_figure_says_that_speeds_are_medians_of_rounds(fake: FakeResults) -> None:
    loss, needles, speed = picture("variants", fake).axes
    assert "median of rounds" in speed.get_xlabel()
    assert not any("median" in axes.get_xlabel() for axes in (loss, needles))


def test_proxy_runs_are_named(fake: FakeResults) -> None:
    artifact = resolved_artifact("variants")
    first, second = artifact.sections
    proxy, two = second.rows[-2:]
    named = {proxy.run: "larger", two.run: two.run}
    rows = [row.model_copy(update={"paper": named.get(row.run)}) for row in second.rows]
    sections = [first, second.model_copy(update={"rows": rows})]
    artifact = artifact.model_copy(update={"sections": sections})
    throughput(fake)
    parameters, flops = make_table(artifact, load_results(fake.results, "tiny")).sections
    assert not any("proxies" in note for note in parameters.notes)
    assert any(note.endswith(f"proxies: {proxy.run} for larger.") for note in flops.notes)
