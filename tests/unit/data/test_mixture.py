import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.data.documents import Cursor
from difftransformer.data.mixture import MixedStream, Mixture, TokenisedDocument
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import DataError

Pack = Callable[..., PackedDataset]
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def stream(lengths: list[int], number: int, start: Cursor) -> Iterator[TokenisedDocument]:
    for record, length in list(enumerate(lengths))[start.record :]:
        tokens = np.full(length, number, dtype=np.uint32)
        yield TokenisedDocument(tokens, "x", Cursor(0, 0, record + 1))


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
            assert mixed.mixture.taken[number] == pytest.approx(
                budget * weight / sum(weights), abs=len(weights)
            )


@given(
    st.lists(st.tuples(LENGTHS, st.floats(0.1, 10)), min_size=1, max_size=3),
    st.integers(1, 2000),
    st.integers(0, 60),
)
def test_a_stream_goes_on_where_it_was(
    sources: list[tuple[list[int], float]], budget: int, stop: int
) -> None:
    lengths, weights = [s[0] for s in sources], [s[1] for s in sources]
    whole = [(d.source, len(d.tokens)) for d in mix(lengths, weights, budget)]
    stopped = mix(lengths, weights, budget)
    begun = [(d.source, len(d.tokens)) for d in islice(stopped, stop)]
    rest = mix(lengths, weights, budget, stopped.mixture.taken, stopped.cursors)
    assert begun + [(d.source, len(d.tokens)) for d in rest] == whole


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
            "licence": name,
            "weight": weight,
        }
    return settings


def test_shares_follow_weights(pack: Pack, two_sources: dict[str, object]) -> None:
    manifest = pack(sources=two_sources, tokens=2000).manifest
    assert manifest.splits["train"].tokens == 2000
    assert manifest.splits["validation"].tokens == 400
    assert manifest.sources["a"].share == pytest.approx(0.25, abs=0.001)
    assert manifest.sources["b"].tokens["validation"] == pytest.approx(300, abs=1)
    assert set(manifest.sources["a"].licences) == {"a"}


def test_a_source_that_runs_out_is_left(
    pack: Pack, two_sources: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    manifest = pack(sources=two_sources, tokens=20_000, validation_tokens=100).manifest
    assert manifest.splits["train"].tokens == 20_000
    assert manifest.sources["b"].share < 0.3
    assert "source b ran out before the budget" in caplog.text


def test_a_source_that_runs_out_can_be_repeated(pack: Pack, two_sources: dict[str, object]) -> None:
    manifest = pack(
        sources=two_sources, tokens=20_000, validation_tokens=100, when_exhausted="repeat"
    ).manifest
    assert manifest.sources["b"].share == pytest.approx(0.75, abs=0.001)
    assert manifest.sources["b"].documents["train"] > 60


def test_repeating_a_source_without_training_text_ends(pack: Pack, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("  \n")
    source = {"kind": "files", "globs": [f"{tmp_path}/a.txt"], "licence": "x"}
    with pytest.raises(DataError, match="source mine: no documents for split train"):
        pack(sources={"mine": source}, tokens=10, when_exhausted="repeat")
