"""Long documents more often: the law of the shares, and that nothing but the documents decides."""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest

from difftransformer.config.data import LengthUpsampling
from difftransformer.data.documents import Cursor
from difftransformer.data.mixture import TokenisedDocument, kept
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import DataError

Pack = Callable[..., PackedDataset]
LENGTHS = (10, 40, 160, 640)
COUNTS = (6000, 3000, 1500, 400)


def documents(readings: int = 1) -> Iterator[TokenisedDocument]:
    """Many documents of four lengths, all different, read over and over."""
    lengths = np.random.default_rng(0).permutation(np.repeat(LENGTHS, COUNTS))
    for reading in range(readings):
        for number, length in enumerate(lengths.tolist()):
            tokens = np.arange(number, number + length, dtype=np.uint32)
            yield TokenisedDocument(tokens, "MIT", Cursor(reading, number + 1))


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_shares_of_tokens_by_length_are_those_of_the_law(power: float) -> None:
    upsampling = LengthUpsampling(full_length=160, power=power)
    found = dict.fromkeys(LENGTHS, 0)
    for document in kept(documents(), upsampling, seed=0):
        found[len(document.tokens)] += 1
    for length, count in zip(LENGTHS, COUNTS, strict=True):
        chance = (min(length, 160) / 160) ** power
        assert upsampling.keep_probability(length) == pytest.approx(chance)
        noise = (count * chance * (1 - chance)) ** 0.5
        assert found[length] == pytest.approx(count * chance, abs=4 * noise), length
    if power == 0:
        assert sum(found.values()) == sum(COUNTS)


def test_each_reading_and_each_seed_draw_anew_and_the_same_again() -> None:
    upsampling = LengthUpsampling(full_length=640)

    def chosen(seed: int) -> list[tuple[int, int]]:
        passed = kept(documents(2), upsampling, seed)
        return [(d.cursor.repeat, d.cursor.record or d.cursor.unit) for d in passed]

    first = chosen(0)
    assert first == chosen(0) != chosen(1)
    one = {unit for reading, unit in first if reading == 0}
    two = {unit for reading, unit in first if reading == 1}
    assert one != two
    assert 0.2 < len(one & two) / len(one | two) < 0.8  # the long ones are in both


def test_documents_pass_one_at_a_time() -> None:
    read = 0

    def counted() -> Iterator[TokenisedDocument]:
        nonlocal read
        for document in documents():
            read += 1
            yield document

    passed = kept(counted(), LengthUpsampling(full_length=10), seed=0)
    assert len(list(islice(passed, 5))) == 5
    assert read == 5


def test_a_corpus_of_which_nothing_is_kept_ends_in_one_line() -> None:
    def endless() -> Iterator[TokenisedDocument]:
        reading = 0
        while True:
            yield TokenisedDocument(np.arange(2, dtype=np.uint32), "MIT", Cursor(reading, 1))
            reading += 1

    with pytest.raises(DataError, match="keeps none of the documents in 100 readings"):
        next(kept(endless(), LengthUpsampling(full_length=10_000, power=9.0), seed=0))


def test_training_is_upsampled_whole_and_validation_is_not(
    stdlib: PackedDataset, pack: Pack
) -> None:
    settings = {"upsampling": {"full_length": 2000}}
    packed = pack(**settings)
    assert packed.manifest.splits["validation"] == stdlib.manifest.splits["validation"]

    def whole(dataset: PackedDataset) -> list[bytes]:
        split = dataset.split("train")
        ends = split.document_ends().tolist()
        return [split.tokens[a:b].tobytes() for a, b in zip([0, *ends], ends, strict=False)]

    all_of_them, some = whole(stdlib), whole(packed)
    assert 0 < len(some) < len(all_of_them)
    assert set(some) < set(all_of_them)
    assert sum(map(len, some)) / len(some) > sum(map(len, all_of_them)) / len(all_of_them)


def test_restarts_and_workers_change_nothing(pack: Pack) -> None:
    settings = {
        "upsampling": {"full_length": 2000},
        "when_exhausted": "repeat",
        "tokens": 200_000,
    }
    whole = pack("whole", **settings)
    assert whole.manifest.splits["train"].tokens == 200_000
    shards = sorted(whole.folder.glob("train-*.bin"))
    before = [path.read_bytes() for path in shards]
    assert len(before) > 4
    (whole.folder / "manifest.json").unlink()
    shards[3].unlink()
    pack("whole", **settings)
    assert [path.read_bytes() for path in shards] == before
    assert pack("elsewhere", workers=2, **settings).digest == whole.digest
