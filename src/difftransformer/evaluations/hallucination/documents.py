"""Documents in English, with a reference summary, or a question about each and its answer.

They come from the hub or from a folder with ``<set>/<split>.jsonl`` or ``.jsonl.gz``; items have
the fields of the data set on the hub, see `HALLUCINATION_SETS`.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import HUB, hub_items, read_items
from difftransformer.evaluations.hallucination.settings import (
    HALLUCINATION_SETS,
    SAMPLES_SEED,
    HallucinationSet,
    Suite,
)


class Item(NamedTuple):
    """One document, the question about it where there is one, and a reference."""

    id: str
    document: str
    question: str | None
    reference: str


def load_items(suite: Suite) -> dict[str, list[Item]]:
    """Return the drawn items of every set that there are any of.

    Raises:
        DataError: There are none at all, an item is damaged, or the hub cannot be reached.
    """
    files = suite.files()
    names = suite.sets if suite.data == HUB else [name for name in suite.sets if name in files]
    if not names:
        raise DataError(
            f"benchmarks: {suite.data}: holds none of the sets {', '.join(suite.sets)}; put "
            "<set>/<split>.jsonl there, or set `benchmarks` to hub"
        )
    found = {}
    for name in names:
        known = HALLUCINATION_SETS[name]
        if path := files.get(name):
            records = [item for _, item in read_items(path)]
        else:
            records = _from_hub(name, known)
        found[name] = _drawn(suite, records, known, str(path or known.dataset))
    return found


def _drawn(
    suite: Suite, records: Sequence[Mapping[str, Any]], known: HallucinationSet, place: str
) -> list[Item]:
    """Draw without replacement; the order of the draw is that of the samples."""
    order = np.random.default_rng(SAMPLES_SEED).permutation(len(records))
    chosen = [int(index) for index in order[: suite.samples]]
    if not chosen:
        raise DataError(f"{place}: holds no items")
    return [_item(records[index], known, f"{place}: item {index + 1}") for index in chosen]


def _item(record: Mapping[str, Any], known: HallucinationSet, place: str) -> Item:
    if not isinstance(record, Mapping):
        raise DataError(f"{place}: not a mapping with fields but {type(record).__name__}")
    question = _field(record, known.question, place) if known.question else None
    document = _field(record, known.document, place)
    name = str(record.get("id") or record.get("_id") or place.rpartition(" ")[2])
    return Item(name, document, question, _field(record, known.reference, place))


def _field(record: Mapping[str, Any], names: Iterable[str], place: str) -> str:
    """Text of the first of some fields; of references in a list the first, passages joined."""
    for name in names:
        value = record.get(name)
        if isinstance(value, list) and value:
            passages = [one for one in value if isinstance(one, Mapping)]
            value = "\n\n".join(_passage(one) for one in passages) if passages else value[0]
        if isinstance(value, str) and value.strip():
            return value.strip()
    raise DataError(f"{place}: has no text in {' or '.join(names)}")


def _passage(passage: Mapping[str, Any]) -> str:
    return f"{passage.get('title', '')}\n{passage.get('text', '')}".strip()


def _from_hub(name: str, known: HallucinationSet) -> list[Mapping[str, Any]]:
    with hub_items(name, known.dataset):
        if known.member is not None:
            return list(_from_archive(known))
        import datasets

        where = {"revision": known.revision, "split": "test"}
        return list(datasets.load_dataset(known.dataset, known.config, **where))


def _from_archive(known: HallucinationSet) -> Iterator[Mapping[str, Any]]:
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(known.dataset, "data.zip", repo_type="dataset", revision=known.revision)
    assert known.member is not None
    with zipfile.ZipFile(path) as archive, archive.open(known.member) as lines:
        for line in lines:
            yield json.loads(line)
