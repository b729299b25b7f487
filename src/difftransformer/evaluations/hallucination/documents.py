"""Load English documents with a reference summary, or with a question and its answer.

They come from the hub or from a folder with ``<set>/<split>.jsonl`` or ``.jsonl.gz``. Items have
the fields of the dataset on the hub, see `HALLUCINATION_SETS`.
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
    """A document, the question about it (None: summarize it), and a reference output."""

    id: str
    document: str
    question: str | None
    reference: str


def load_items(suite: Suite) -> dict[str, list[Item]]:
    """Return the sampled documents of each set: of sets with a local file, or of all on the hub.

    Raises:
        DataError: No set has items, an item is damaged, or the hub cannot be reached.
    """
    files = suite.files()
    names = suite.sets if suite.data == HUB else [name for name in suite.sets if name in files]
    if not names:
        raise DataError(
            f"benchmarks: {suite.data}: contains none of the sets {', '.join(suite.sets)}; put "
            "<set>/<split>.jsonl there, or set `benchmarks` to hub"
        )
    items = {}
    for name in names:
        schema = HALLUCINATION_SETS[name]
        if path := files.get(name):
            records = [item for _, item in read_items(path)]
        else:
            records = _from_hub(name, schema)
        items[name] = _sample(suite, records, schema, str(path or schema.hub_path))
    return items


def _sample(
    suite: Suite, records: Sequence[Mapping[str, Any]], schema: HallucinationSet, location: str
) -> list[Item]:
    """Sample without replacement; items keep the order of the random permutation."""
    order = np.random.default_rng(SAMPLES_SEED).permutation(len(records))
    indices = [int(index) for index in order[: suite.samples]]
    if not indices:
        raise DataError(f"{location}: contains no items")
    return [_item(records[index], schema, f"{location}: item {index + 1}") for index in indices]


def _item(record: Mapping[str, Any], schema: HallucinationSet, location: str) -> Item:
    if not isinstance(record, Mapping):
        raise DataError(f"{location}: not a mapping with fields but {type(record).__name__}")
    question = _field(record, schema.question, location) if schema.question else None
    document = _field(record, schema.document, location)
    name = str(record.get("id") or record.get("_id") or location.rpartition(" ")[2])
    return Item(name, document, question, _field(record, schema.reference, location))


def _field(record: Mapping[str, Any], names: Iterable[str], location: str) -> str:
    """Text of the first field that has one; of a list its passages joined, or its first text."""
    for name in names:
        value = record.get(name)
        if isinstance(value, list) and value:
            passages = [passage for passage in value if isinstance(passage, Mapping)]
            value = "\n\n".join(map(_passage, passages)) if passages else value[0]
        if isinstance(value, str) and value.strip():
            return value.strip()
    raise DataError(f"{location}: has no text in {' or '.join(names)}")


def _passage(passage: Mapping[str, Any]) -> str:
    return f"{passage.get('title', '')}\n{passage.get('text', '')}".strip()


def _from_hub(name: str, schema: HallucinationSet) -> list[Mapping[str, Any]]:
    with hub_items(name, schema.hub_path):
        if schema.archive_member is not None:
            return list(_from_archive(schema, schema.archive_member))
        import datasets

        options = {"revision": schema.revision, "split": "test"}
        return list(datasets.load_dataset(schema.hub_path, schema.hub_config, **options))


def _from_archive(schema: HallucinationSet, member: str) -> Iterator[Mapping[str, Any]]:
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(
        schema.hub_path, "data.zip", repo_type="dataset", revision=schema.revision
    )
    with zipfile.ZipFile(path) as archive, archive.open(member) as lines:
        for line in lines:
            yield json.loads(line)
