"""Decoding from synthetic results: tokens of all sequences, ratios by round, cache bytes."""

import math
from statistics import median

import pytest
from answers import claims_on, verdicts_of
from fake_configs import resolved_artifact
from fake_results import FakeResults
from fake_throughput import PROCESSES, SPEED, decoding

from difftransformer.evaluations.decoding.settings import MODE
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import make_table
from difftransformer.reporting.timing_rounds import TimingResults

GQA = "transformer_gqa"


def test_decoding_counts_the_tokens_of_all_sequences_and_pairs_rounds(small: FakeResults) -> None:
    start, slower = "b4_s256/{}/{}/decoding", [9.0] * PROCESSES
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
    made = make_table(resolved_artifact("v2_decoding"), load_results(small.results, "tiny"))
    speed, ratio = (made.find("diff_v2", f"b4_s256{end}") for end in ("", "_ratio"))
    assert speed is not None and ratio is not None
    assert list(speed.by_seed().values()) == pytest.approx([4 * 8 / cell for cell in ours])
    assert list(ratio.by_seed().values()) == pytest.approx([0.5, 0.25, 1.0, 0.25, 0.5])
    overall = made.find("diff_v2", "ratio")
    timings, sides = (
        TimingResults(load_results(small.results, "tiny"), "decoding"),
        ("diff_v2", GQA),
    )
    single = [timings.ratios(f"b{b}_s{s}", *sides, MODE) for b in (1, 4) for s in (256, 1024)]
    assert overall is not None
    assert list(overall.by_seed().values()) == pytest.approx(
        [
            median(math.prod(cell) ** 0.25 for cell in zip(*rounds, strict=True))
            for rounds in zip(*single, strict=True)
        ]
    )
    held = made.find("diff_v2", "cache_bytes")
    assert held is not None and held.value == 2048
    sizes = [made.find("diff_v2", f"b{b}_s{s}_mib") for b in (1, 4) for s in (256, 1024)]
    assert [cell and (cell.value, cell.text) for cell in sizes] == [
        (0.5, "0.5"), (2, "2.0"), (2, "2.0"), (8, "8.0"),
    ]  # fmt: skip
    share = made.find("diff_v2", "b4_s256_mbu")
    assert share is not None and share.value == pytest.approx(4 * 8 / 4.0 * 5e8 / 4 / 2e9)


@pytest.mark.parametrize(
    ("speed", "words"), [(SPEED[GQA], "reproduced at this scale"), (0.9, "opposite at this scale")]
)
def test_a_verdict_is_over_processes(
    speed: float, words: str, small: FakeResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SPEED, "diff_v2", speed)
    decoding(small)
    results = load_results(small.results, "tiny")
    (verdict,) = verdicts_of(claims_on("v2_decoding"), results).values()
    assert verdict.words == words and f"{PROCESSES} processes" in verdict.reason
    (ratio,) = verdict.contrasts
    cell = make_table(resolved_artifact("v2_decoding"), results).find("diff_v2", "ratio")
    assert cell is not None
    assert dict(zip(ratio.seeds, ratio.values, strict=True)) == cell.by_seed()
    assert ratio.seeds == list(range(PROCESSES))


def test_unknown_memory_bandwidth_gives_no_utilization(small: FakeResults) -> None:
    decoding(small, peak=None)
    made = make_table(resolved_artifact("v2_decoding"), load_results(small.results, "tiny"))
    assert made.find("diff_v2", "b4_s256_mbu") is None
    assert "Memory bandwidth utilization" not in [part.title for part in made.sections]


def test_decoding_compares_v2_with_either_transformer(small: FakeResults) -> None:
    key, slower, ours = "b4_s256/{}/{}/decoding", [9.0] * PROCESSES, [2.0, 4.0, 3.0, 8.0, 5.0]
    decoding(
        small,
        changes={
            key.format("diff_v2", "sdpa"): ours,
            key.format("diff_v2", "eager"): slower,
            key.format("transformer_double_heads", "sdpa"): [1.0] * PROCESSES,
            key.format("transformer_double_heads", "eager"): slower,
        },
    )
    made = make_table(resolved_artifact("v2_decoding"), load_results(small.results, "tiny"))
    *_, doubled, held, share = made.sections
    assert "as many queries" in doubled.title and held.title == "KV cache, MiB"
    assert share.title == "Memory bandwidth utilization"
    assert [row.run for row in doubled.rows] == ["diff_v2"]
    name = "ratio_to_transformer_double_heads"
    assert made.find("diff_v2", name) is not None and made.find("diff_v2", "ratio") is not None
    cell = made.find("diff_v2", f"b4_s256_{name}")
    assert cell is not None
    assert list(cell.by_seed().values()) == pytest.approx([1 / ratio for ratio in ours])
