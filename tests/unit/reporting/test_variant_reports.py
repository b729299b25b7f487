"""What the tables say of each mechanism: its speed, its bounds, and what of it is ours."""

from statistics import median

import pytest
from fake_results import FakeResults
from fake_slices import artifact_slice
from fake_throughput import REPEATS, throughput
from pictures import picture

from difftransformer.config.artifact_slices import MARK
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Section, TableDocument
from difftransformer.reporting.measures.context_bounds import BOUNDS, ORIGIN
from difftransformer.reporting.tables.table7 import build as build_table7
from difftransformer.reporting.tables.v2_context_rms import build as build_context_rms
from difftransformer.reporting.tables.v2_sinks import build as build_sinks
from difftransformer.reporting.tables.variants import build as build_variants

PLACE = "variants/{}/{}/training"


def text(section: Section, row: str, column: str) -> str:
    found = section.cell(row, column)
    assert found is not None, (row, column)
    return found.text


def variants(fake: FakeResults) -> TableDocument:
    return build_variants(artifact_slice("variants"), load_results(fake.results, "tiny"))


def test_a_variant_has_its_speed_of_training_and_the_median_of_its_ratios(
    fake: FakeResults,
) -> None:
    ours, theirs = [2.0, 4.0, 3.0, 8.0, 5.0], [1.0, 1.0, 3.0, 2.0, 2.5]
    slow = [9.0] * REPEATS
    changes = {
        PLACE.format("dint", "sdpa"): ours,
        PLACE.format("dint", "blocked"): slow,
        PLACE.format("transformer_gqa", "sdpa"): slow,
        PLACE.format("transformer_gqa", "blocked"): theirs,
    }
    throughput(fake, changes=changes)
    first, second = variants(fake).sections
    speed, ratio = (first.cell("dint", name) for name in ("speed", "speed_ratio"))
    assert speed is not None and ratio is not None
    assert speed.value == median(64 * 8 / one for one in ours)
    assert ratio.value == 0.5 and ratio.text == "0.50"
    assert first.cell("transformer_gqa", "speed_ratio") is None
    assert second.cell("dint_equal_flops", "speed") is not None
    assert any("at 64, batch of 8" in note and "CPU time" in note for note in first.notes)


def test_a_scale_that_times_no_variants_has_no_column_of_speed(fake: FakeResults) -> None:
    artifact = artifact_slice("variants")
    for part in artifact.sections:
        for row in part.rows:
            row.facts["timed"] = False
    made = build_variants(artifact, load_results(fake.results, "tiny"))
    assert all("speed" not in column.id for part in made.sections for column in part.columns)


def test_the_figure_says_that_speeds_are_medians_of_rounds(fake: FakeResults) -> None:
    loss, needles, speed = picture("variants", fake).axes
    assert "median of rounds" in speed.get_xlabel()
    assert not any("median" in axes.get_xlabel() for axes in (loss, needles))


def test_layers_count_from_one_for_readers(fake: FakeResults) -> None:
    made = build_sinks(artifact_slice("v2_sinks"), load_results(fake.results, "tiny"))
    headers = {column.id: column.header for column in made.sections[0].columns}
    assert (headers["share_l0"], headers["share_l1"]) == ("Share, layer 1", "Share, layer 2")
    (axes,) = picture("v2_sinks", fake).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]


def test_rows_that_others_stand_in_for_are_named(fake: FakeResults) -> None:
    artifact = artifact_slice("variants")
    first, second = artifact.sections
    one, two = second.rows[-2:]
    named = {one.run: "larger", two.run: two.run}
    rows = [row.model_copy(update={"paper": named.get(row.run)}) for row in second.rows]
    sections = [first, second.model_copy(update={"rows": rows})]
    artifact = artifact.model_copy(update={"sections": sections})
    throughput(fake)
    parameters, flops = build_variants(artifact, load_results(fake.results, "tiny")).sections
    assert not any("stand in" in note for note in parameters.notes)
    assert any(note.endswith(f"sizes: {one.run} for larger.") for note in flops.notes)


def test_every_mechanism_has_bounds_and_says_whose_they_are(fake: FakeResults) -> None:
    artifact = artifact_slice("v2_context_rms")
    made = build_context_rms(artifact, load_results(fake.results, "tiny"))
    section = made.sections[0]
    origins = {row.run: text(section, row.run, ORIGIN) for row in section.rows}
    assert {row for row, origin in origins.items() if origin == "the post"} == {
        "transformer_gqa", "diff_v2", "gpt_oss_sink", "softmax_off_by_one", "gated_headwise",
        "gated_elementwise",
    }  # fmt: skip
    assert {row for row, origin in origins.items() if origin == "ours"} == {
        "diff_gqa", "diff_v2_no_lambda", "diff_v2_raw_lambda", "dint", "shared_diff", "tda",
    }  # fmt: skip
    assert text(section, "transformer_gqa", BOUNDS) == "1/√n to 1"
    assert text(section, "diff_v2", BOUNDS) == "0 to √2"
    assert text(section, "diff_v2_raw_lambda", BOUNDS) == "0 to ∞"
    derivations = [note for note in section.notes if "our derivation" in note]
    assert len(derivations) == 1 and "DIFF V1, Shared DIFF: a row sums to 1 − λ" in derivations[0]


@pytest.mark.parametrize("artifact", ["variants", "v2_context_rms", "table7"])
def test_an_interpretation_is_marked_wherever_it_is_shown(artifact: str, fake: FakeResults) -> None:
    build = {"variants": build_variants, "v2_context_rms": build_context_rms}
    make = build.get(artifact, build_table7)
    made = make(artifact_slice(artifact), load_results(fake.results, "tiny"))
    shown = [row for section in made.sections for row in section.rows if "dint" in row.run]
    others = [row for section in made.sections for row in section.rows if "diff" in row.run]
    assert shown and all(MARK in row.label for row in shown)
    assert others and not any(MARK in row.label for row in others)
    notes = [note for note in made.notes if note.startswith("* An interpretation")]
    assert len(notes) == 1 and "DINT" in notes[0] and "causal form" in notes[0]
