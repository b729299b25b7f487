"""Train/validation overlap: detection, near-duplicates and dropping of documents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig
from difftransformer.data import overlap
from difftransformer.data.overlap import (
    find_near_duplicates,
    largest_subset_within,
    overlapping_tokens,
    shared_ngrams,
)
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import DataError

Configure = Callable[..., DatasetConfig]
Pack = Callable[..., PackedDataset]
Tokens = NDArray[np.integer]


def shard(*documents: Tokens) -> overlap.Shard:
    return np.concatenate(documents), np.cumsum([len(each) for each in documents])


def leaking_naively(text: Tokens, training: list[Tokens], n: int) -> int:
    held = {tuple(d[at : at + n]) for d in training for at in range(len(d) - n + 1)}
    leaked: set[int] = set()
    for at in range(len(text) - n + 1):
        if tuple(text[at : at + n]) in held:
            leaked.update(range(at, at + n))
    return len(leaked)


@pytest.mark.parametrize("chunk", [7, 1 << 20])
@pytest.mark.parametrize(("n", "vocab_size"), [(3, 6), (5, 4), (32, 2)])
def test_leaking_tokens_are_those_counted_naively(
    chunk: int, n: int, vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlap, "_CHUNK", chunk)
    drawn = np.random.default_rng(n)
    training = [drawn.integers(vocab_size, size=size) for size in (90, 200, n - 1)]
    texts = [drawn.integers(vocab_size, size=size) for size in (50, n - 1, 120)]
    texts[0][5 : 5 + n] = training[1][40 : 40 + n]
    shards = [shard(training[0]), shard(*training[1:])]
    seen = shared_ngrams(texts, [shards[0], shard(training[1])], n, vocab_size)
    overlaps = [overlapping_tokens(text, seen, n, vocab_size) for text in texts]
    assert overlaps == [leaking_naively(text, training, n) for text in texts]
    assert n <= overlaps[0] and overlaps[1] == 0
    assert not len(shared_ngrams([texts[1]], shards, n, vocab_size))


def test_the_most_overlapping_documents_are_dropped_first() -> None:
    overlapping, lengths = np.array([8, 0, 5, 1]), np.array([10, 100, 50, 90])
    assert largest_subset_within(overlapping, lengths, None).tolist() == [0, 1, 2, 3]
    assert largest_subset_within(overlapping, lengths, 0.06).tolist() == [0, 1, 2, 3]
    assert largest_subset_within(overlapping, lengths, 0.05).tolist() == [1, 2, 3]
    assert largest_subset_within(overlapping, lengths, 6 / 240).tolist() == [1, 2, 3]
    assert largest_subset_within(overlapping, lengths, 0.02).tolist() == [1, 3]
    assert largest_subset_within(overlapping, lengths, 0.0).tolist() == [1]
    assert largest_subset_within(np.array([2]), np.array([3]), 0.5).tolist() == []


def test_near_duplicates_of_training_and_of_each_other(configure: Configure) -> None:
    drawn = np.random.default_rng(0)
    trained, fresh = (drawn.integers(500, size=600) for _ in range(2))
    changed, longer = trained[:400].copy(), np.concatenate([trained, fresh])
    changed[100] = 500
    texts = [changed, fresh[:400], fresh[1:400], longer[300:700], trained[:3]]
    dataset = configure(near_duplicates=0.8, max_validation_document_tokens=400)
    duplicates = find_near_duplicates(texts, [shard(fresh[500:], longer)], dataset, 512)
    assert duplicates.tolist() == [True, False, True, False, False]
    untouched = find_near_duplicates(texts, [shard(longer)], configure(), 512)
    assert not untouched.any()


@pytest.fixture
def corpus(tmp_path: Path) -> dict[str, object]:
    """Two training texts, and held out: one of its own, one with a passage, one with a copy."""
    drawn = np.random.default_rng(1)

    def words(size: int) -> str:
        return " ".join("".join(drawn.choice(list("abcdefghij"), 6)) for _ in range(size))

    first, second, own = words(300), words(300), words(300)
    (tmp_path / "train").mkdir()
    (tmp_path / "held").mkdir()
    for name, text in {
        "train/1": first,
        "train/2": second,
        "held/a": own,
        "held/b": words(200) + first[300:900],
        "held/c": second + " changed",
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
    globs = {"globs": [f"{tmp_path}/train/*"], "validation": [f"{tmp_path}/held/*"]}
    return {"kind": "files", "license": "x", **globs}


def test_overlapping_validation_documents_are_dropped_and_logged(
    pack: Pack, corpus: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    unfiltered = pack("whole", sources={"mine": corpus})
    filtered = pack("clean", sources={"mine": corpus}, near_duplicates=0.8, max_overlap=0.005)
    before, after = unfiltered.manifest.overlap, filtered.manifest.overlap
    assert before is not None and after is not None
    assert before.share == before.share_before_dropping == after.share_before_dropping > 0.4
    assert (after.near_duplicates.documents, after.overlapping.documents) == (1, 1)
    assert after.share == 0.0
    sizes = np.diff(unfiltered.split("validation").document_ends(), prepend=0).tolist()
    assert [after.overlapping.tokens, after.near_duplicates.tokens] == sizes[1:]
    tokens_after = filtered.split("validation").tokens[:]
    assert np.array_equal(tokens_after, unfiltered.split("validation").tokens[: sizes[0]])
    assert filtered.manifest.sources["mine"].documents == {"train": 2, "validation": 1}
    assert filtered.manifest.splits["train"] == unfiltered.manifest.splits["train"]
    assert "1 documents" in caplog.text and "near-duplicates and 1" in caplog.text


def test_a_short_validation_split_logs_a_warning(
    pack: Pack, corpus: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    def packed(name: str, **settings: Any) -> int:
        caplog.clear()
        manifest = pack(name, sources={"mine": corpus}, **settings).manifest
        return manifest.splits["validation"].tokens

    def warned(left: int, budget: int, loosen: str = "") -> bool:
        start = f"validation: {left} tokens are left, the budget was {budget}: add text, {loosen}"
        return f"{start}or raise validation_share (0.2)" in caplog.messages

    total = packed("all")
    packed("half there", validation_tokens=2 * total)
    assert "tokens are left" not in caplog.text
    packed("too short", validation_tokens=2 * total + 1)
    assert warned(total, 2 * total + 1)
    left = packed("dropped", validation_tokens=total, near_duplicates=0.8, max_overlap=0.005)
    assert 2 * left < total
    assert warned(left, total, "loosen near_duplicates or max_overlap, ")


def test_repacking_reproduces_the_overlap_in_the_manifest(
    pack: Pack, corpus: dict[str, object]
) -> None:
    settings = {"sources": {"mine": corpus}, "max_overlap": 0.3, "shard_tokens": 100}
    first = pack(**settings)
    before = (first.folder / "manifest.json").read_bytes()
    assert len(first.manifest.splits["validation"].shards) > 1
    for path in first.folder.glob("manifest.json"):
        path.unlink()
    assert (pack(**settings).folder / "manifest.json").read_bytes() == before


def test_dropping_every_validation_document_is_an_error(
    pack: Pack, corpus: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "held" / "a.txt").unlink()
    message = (
        r"sources mine \(.*train/\*, .*held/\*\): 4 documents with \d+ tokens"
        r".* none of 2 held-out ones .*max_overlap 0\.0\): add text, hold out more"
    )
    with pytest.raises(DataError, match=message):
        pack(sources={"mine": corpus}, max_overlap=0.0)
