"""Timings from made results: ratios by round, the fastest backend, verdicts over repeats."""

import math
from statistics import median

import pytest
from fake_results import FakeResults
from fake_slices import artifact_slice
from fake_throughput import REPEATS, SHAPES, decoding, throughput
from pictures import picture

from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.formats.markdown import to_markdown
from difftransformer.reporting.measures.decoding import DecodingTimings
from difftransformer.reporting.measures.throughput import MODES, Timings
from difftransformer.reporting.tables.table7 import build
from difftransformer.reporting.tables.v2_decoding import build as build_decoding


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


def test_each_row_has_its_own_fastest_backend_and_rounds_stay_together(small: FakeResults) -> None:
    start, slower = "short/{}/{}/training", [9.0] * REPEATS
    ours, theirs = [2.0, 4.0, 3.0, 8.0, 5.0], [1.0, 1.0, 3.0, 2.0, 2.5]
    throughput(
        small,
        changes={
            start.format("diff", "sdpa"): ours,
            start.format("diff", "blocked"): [0.1, *slower[1:]],  # fast in one round alone
            start.format("transformer", "sdpa"): slower,
            start.format("transformer", "blocked"): theirs,
        },
    )
    made = build(artifact_slice("table7"), load_results(small.results, "tiny"))
    ratio, speed = (made.find("diff", f"short_training{end}") for end in ("_ratio", ""))
    assert ratio is not None and speed is not None
    assert list(ratio.by_seed().values()) == pytest.approx([0.5, 0.25, 1.0, 0.25, 0.5])
    assert (ratio.value, ratio.text) == (0.5, "0.500 (0.250 to 0.500)")
    assert (ratio.std, ratio.ci_low, ratio.ci_high, ratio.n) == (None, None, None, REPEATS)
    assert list(speed.by_seed().values()) == pytest.approx([128 * 16 / one for one in ours])


def test_decoding_counts_the_tokens_of_all_sequences_and_pairs_rounds(small: FakeResults) -> None:
    start, slower = "b4/s256/{}/{}", [9.0] * REPEATS
    ours, theirs = [2.0, 4.0, 3.0, 8.0, 5.0], [1.0, 1.0, 3.0, 2.0, 2.5]
    decoding(
        small,
        changes={
            start.format("diff_v2", "eager"): ours,
            start.format("diff_v2", "sdpa"): [0.1, *slower[1:]],
            start.format("transformer_gqa", "eager"): slower,
            start.format("transformer_gqa", "sdpa"): theirs,
        },
    )
    made = build_decoding(artifact_slice("v2_decoding"), load_results(small.results, "tiny"))
    speed, ratio = (made.find("diff_v2", f"b4_s256{end}") for end in ("", "_ratio"))
    assert speed is not None and ratio is not None
    assert list(speed.by_seed().values()) == pytest.approx([4 * 8 / one for one in ours])
    assert list(ratio.by_seed().values()) == pytest.approx([0.5, 0.25, 1.0, 0.25, 0.5])
    overall = made.find("diff_v2", "ratio")
    single = [made.find("diff_v2", f"b{b}_s{s}_ratio") for b in (1, 4) for s in (256, 1024)]
    assert overall is not None
    by_round = zip(*(one.by_seed().values() for one in single if one is not None), strict=True)
    assert list(overall.by_seed().values()) == pytest.approx(
        [math.prod(x) ** 0.25 for x in by_round]
    )
    held = made.find("diff_v2", "cache_bytes")
    assert held is not None and held.value == 2048
    whole = [made.find("diff_v2", f"b{b}_s{s}_mib") for b in (1, 4) for s in (256, 1024)]
    assert [one and (one.value, one.text) for one in whole] == [
        (0.5, "0.5"), (2, "2.0"), (2, "2.0"), (8, "8.0"),
    ]  # fmt: skip


def test_decoding_compares_v2_with_either_transformer(small: FakeResults) -> None:
    place, slower, ours = "b4/s256/{}/{}", [9.0] * REPEATS, [2.0, 4.0, 3.0, 8.0, 5.0]
    decoding(
        small,
        changes={
            place.format("diff_v2", "sdpa"): ours,
            place.format("diff_v2", "eager"): slower,
            place.format("transformer_double_heads", "sdpa"): [1.0] * REPEATS,
            place.format("transformer_double_heads", "eager"): slower,
        },
    )
    made = build_decoding(artifact_slice("v2_decoding"), load_results(small.results, "tiny"))
    *_, doubled, held = made.sections
    assert "as many queries" in doubled.title and held.title == "KV cache, MiB"
    assert [row.run for row in doubled.rows] == ["diff_v2"]
    name = "ratio_to_transformer_double_heads"
    assert made.find("diff_v2", name) is not None and made.find("diff_v2", "ratio") is not None
    cell = made.find("diff_v2", f"b4_s256_{name}")
    assert cell is not None
    assert list(cell.by_seed().values()) == pytest.approx([1 / one for one in ours])


@pytest.mark.parametrize(("slow", "verdict"), [(1.0, "confirmed"), (0.8, "contradicted")])
def test_verdicts_speak_of_repeats(slow: float, verdict: str, small: FakeResults) -> None:
    made = table(small, slow)
    assert {one.verdict for one in made.verdicts} == {verdict}
    assert f"over {REPEATS} repeats" in made.verdicts[0].reason
    assert "seed" not in to_markdown(made)


def test_a_row_that_was_not_timed_is_named_with_what_comes_nearest(small: FakeResults) -> None:
    decoding(small)
    part = artifact_slice("v2_decoding").sections[0]
    timings = DecodingTimings(load_results(small.results, "tiny"))
    with pytest.raises(UserError, match=r"'cache_bytes/dint'.*nearest of its 164: cache_b"):
        timings.cache_bytes("dint")
    assert timings.cache_bytes(part.rows[0].run) == 2048


def test_a_round_without_its_seconds_is_refused(small: FakeResults) -> None:
    throughput(small, changes={"short/diff/sdpa/training": [1.0, None]})
    decoding(small, changes={"b4/s256/diff_v2/sdpa": [1.0, None]})
    results = load_results(small.results, "tiny")
    with pytest.raises(UserError, match=r"diff/sdpa/training/1 is undefined"):
        Timings(results).fastest("short", "diff", "training")
    with pytest.raises(UserError, match=r"diff_v2/sdpa/1 is undefined"):
        DecodingTimings(results).speeds("diff_v2", (4, 256))


def test_timings_that_are_missing_name_the_command(small: FakeResults) -> None:
    with pytest.raises(UserError, match=r"snakemake results/tiny/throughput\.json"):
        build(artifact_slice("table7"), load_results([], "tiny"))


def test_the_figure_has_published_ratios_beside_ours(small: FakeResults) -> None:
    throughput(small)
    artifact = artifact_slice("table7", "figure")
    timings = Timings(load_results(small.results, "tiny"))
    assert artifact.paper is not None
    ours, theirs = (artifact.paper.rows[row].values for row in ("diff", "transformer"))
    ratios = {name: float(value) / float(theirs[name]) for name, value in ours.items()}
    for axes, mode in zip(picture("table7", small).axes, MODES, strict=True):
        hollow = [line.get_ydata()[0] for line in axes.lines if line.get_mfc() == "white"]
        assert hollow == [one for name, one in ratios.items() if name.endswith(mode)]
        marks = {line.get_ydata()[0] for line in axes.lines}
        for shape in SHAPES:
            assert median(timings.ratios(shape, "diff", "transformer", mode)) in marks
    assert f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f}" in artifact.alt
