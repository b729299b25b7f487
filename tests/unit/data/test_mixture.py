"""Mixing sources by weight, and upsampling of long documents."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.config.data import LengthUpsampling
from difftransformer.data.documents import Cursor
from difftransformer.data.mixture import MixedStream, Mixture, TokenizedDocument, upsample
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import DataError

Pack = Callable[..., PackedDataset]
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def stream(lengths: list[int], number: int, start: Cursor) -> Iterator[TokenizedDocument]:
    for record, length in list(enumerate(lengths))[start.record :]:
        tokens = np.full(length, number, dtype=np.uint32)
        yield TokenizedDocument(tokens, "x", Cursor(0, 0, record + 1))


def mix(
    sources: list[list[int]],
    weights: list[float],
    budget: int | None,
    taken: list[int] | None = None,
    cursors: list[Cursor] | None = None,
) -> MixedStream:
    cursors = cursors or [Cursor()] * len(sources)
    streams = [stream(lengths, n, cursors[n]) for n, lengths in enumerate(sources)]
    return MixedStream(streams, Mixture(weights, taken), budget, cursors)


@given(
    st.lists(st.tuples(LENGTHS, st.floats(0.1, 10)), min_size=1, max_size=4), st.integers(1, 3000)
)
def test_budget_is_met_unless_everything_ran_out(
    sources: list[tuple[list[int], float]], budget: int
) -> None:
    lengths, weights = [s[0] for s in sources], [s[1] for s in sources]
    mixed = mix(lengths, weights, budget)
    taken = sum(len(document.tokens) for document in mixed)
    assert taken == mixed.total <= budget
    if taken < budget:
        assert all(mixed.mixture.exhausted)
    elif not any(mixed.mixture.exhausted):
        for number, weight in enumerate(weights):
            assert mixed.mixture.consumed[number] == pytest.approx(
                budget * weight / sum(weights), abs=len(weights)
            )


def test_a_share_that_is_no_whole_number_is_rounded_up() -> None:
    """Rounded down it would leave a token, for which a source would cut one more document."""
    pieces = [(d.source, len(d.tokens)) for d in mix([[100]] * 3, [1.0] * 3, budget=10)]
    assert pieces == [(0, 4), (1, 4), (2, 2)]


@given(
    st.lists(st.tuples(LENGTHS, st.floats(0.1, 10)), min_size=1, max_size=3),
    st.integers(1, 2000),
    st.integers(0, 60),
)
def test_a_stream_resumes_from_its_cursors(
    sources: list[tuple[list[int], float]], budget: int, stop: int
) -> None:
    lengths, weights = [s[0] for s in sources], [s[1] for s in sources]
    expected = [(d.source, len(d.tokens)) for d in mix(lengths, weights, budget)]
    stopped = mix(lengths, weights, budget)
    begun = [(d.source, len(d.tokens)) for d in islice(stopped, stop)]
    rest = mix(lengths, weights, budget, stopped.mixture.consumed, stopped.cursors)
    assert begun + [(d.source, len(d.tokens)) for d in rest] == expected


@pytest.fixture
def two_sources(tmp_path: Path) -> dict[str, dict[str, object]]:
    """600 short documents of "a" words and 60 of "b" words."""
    settings: dict[str, dict[str, object]] = {}
    for name, count, weight in (("a", 600, 1.0), ("b", 60, 3.0)):
        lines = [json.dumps({"text": f"{name}{n} " * 20}) + "\n" for n in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
        settings[name] = {
            "kind": "files",
            "globs": [f"{tmp_path}/{name}.jsonl"],
            "license": name,
            "weight": weight,
        }
    return settings


def test_shares_follow_weights(pack: Pack, two_sources: dict[str, object]) -> None:
    manifest = pack(sources=two_sources, tokens=2000).manifest
    assert manifest.splits["train"].tokens == 2000
    assert manifest.splits["validation"].tokens == 400
    assert manifest.sources["a"].share == pytest.approx(0.25, abs=0.001)
    assert manifest.sources["b"].tokens["validation"] == pytest.approx(300, abs=1)
    assert set(manifest.sources["a"].licenses) == {"a"}


def test_an_exhausted_source_is_dropped(
    pack: Pack, two_sources: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    manifest = pack(sources=two_sources, tokens=20_000, validation_tokens=100).manifest
    assert manifest.splits["train"].tokens == 20_000
    assert manifest.sources["b"].share < 0.3
    assert "source b is exhausted" in caplog.text


def test_an_exhausted_source_can_be_repeated(pack: Pack, two_sources: dict[str, object]) -> None:
    manifest = pack(
        sources=two_sources, tokens=20_000, validation_tokens=100, when_exhausted="repeat"
    ).manifest
    assert manifest.sources["b"].share == pytest.approx(0.75, abs=0.001)
    assert manifest.sources["b"].documents["train"] > 60


def test_repeating_a_source_without_training_text_ends(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("  \n")
    source = {"kind": "files", "globs": [f"{tmp_path}/a.txt"], "license": "x"}
    with pytest.raises(DataError, match="sources mine: no text for training"):
        pack(sources={"mine": source}, tokens=10, when_exhausted="repeat")


SIZES = (10, 40, 160, 640)
COUNTS = (6000, 3000, 1500, 400)


def documents(readings: int = 1) -> Iterator[TokenizedDocument]:
    """Many documents of four lengths, all different, read over and over."""
    lengths = np.random.default_rng(0).permutation(np.repeat(SIZES, COUNTS))
    for reading in range(readings):
        for number, length in enumerate(lengths.tolist()):
            tokens = np.arange(number, number + length, dtype=np.uint32)
            yield TokenizedDocument(tokens, "MIT", Cursor(reading, number + 1))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_length_upsampling_keeps_the_expected_counts(power: float) -> None:
    upsampling = LengthUpsampling(full_length=160, power=power)
    counts = dict.fromkeys(SIZES, 0)
    for document in upsample(documents(), upsampling, seed=0):
        counts[len(document.tokens)] += 1
    for length, count in zip(SIZES, COUNTS, strict=True):
        chance = (min(length, 160) / 160) ** power
        assert upsampling.keep_probability(length) == pytest.approx(chance)
        noise = (count * chance * (1 - chance)) ** 0.5
        assert counts[length] == pytest.approx(count * chance, abs=4 * noise), length
    if power == 0:
        assert sum(counts.values()) == sum(COUNTS)


def test_upsampling_is_deterministic_per_seed_and_pass() -> None:
    upsampling = LengthUpsampling(full_length=640)

    def chosen(seed: int) -> list[tuple[int, int]]:
        passed = upsample(documents(2), upsampling, seed)
        return [(d.cursor.repeat, d.cursor.record or d.cursor.file) for d in passed]

    first = chosen(0)
    assert first == chosen(0) != chosen(1)
    first_pass = {unit for reading, unit in first if reading == 0}
    second_pass = {unit for reading, unit in first if reading == 1}
    assert first_pass != second_pass
    overlap = len(first_pass & second_pass) / len(first_pass | second_pass)
    assert 0.2 < overlap < 0.8  # long documents are in both passes


def test_upsampling_is_lazy() -> None:
    read = 0

    def counted() -> Iterator[TokenizedDocument]:
        nonlocal read
        for document in documents():
            read += 1
            yield document

    passed = upsample(counted(), LengthUpsampling(full_length=10), seed=0)
    assert len(list(islice(passed, 5))) == 5
    assert read == 5


def test_upsampling_that_drops_every_document_is_an_error() -> None:
    def endless() -> Iterator[TokenizedDocument]:
        reading = 0
        while True:
            yield TokenizedDocument(np.arange(2, dtype=np.uint32), "MIT", Cursor(reading, 1))
            reading += 1

    with pytest.raises(DataError, match="in 100 passes"):
        next(upsample(endless(), LengthUpsampling(full_length=10_000, power=9.0), seed=0))


def test_only_training_documents_are_upsampled(stdlib: PackedDataset, pack: Pack) -> None:
    settings = {"upsampling": {"full_length": 2000}}
    packed = pack(**settings)
    assert packed.manifest.splits["validation"] == stdlib.manifest.splits["validation"]

    def document_bytes(dataset: PackedDataset) -> list[bytes]:
        split = dataset.split("train")
        ends = split.document_ends().tolist()
        return [split.tokens[a:b].tobytes() for a, b in zip([0, *ends], ends, strict=False)]

    all_documents, upsampled = document_bytes(stdlib), document_bytes(packed)
    assert 0 < len(upsampled) < len(all_documents)
    assert set(upsampled) < set(all_documents)
    assert fmean(map(len, upsampled)) > fmean(map(len, all_documents))


def test_restarts_and_workers_change_nothing(pack: Pack) -> None:
    settings = {"upsampling": {"full_length": 2000}, "when_exhausted": "repeat", "tokens": 200_000}
    dataset = pack("whole", **settings)
    assert dataset.manifest.splits["train"].tokens == 200_000
    shards = sorted(dataset.folder.glob("shards/train-*.bin"))
    before = [path.read_bytes() for path in shards]
    assert len(before) > 4
    (dataset.folder / "manifest.json").unlink()
    shards[3].unlink()
    pack("whole", **settings)
    assert [path.read_bytes() for path in shards] == before
    assert pack("elsewhere", workers=2, **settings).digest == dataset.digest
