"""Packing generated rows into shards, with a tokenizer that writes them as words."""

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig, GeneratedRows, RecallConfig
from difftransformer.data import classification, recall
from difftransformer.data.packed import SPLITS, Manifest, ShardEntry, SourceEntry, retire_manifest
from difftransformer.data.parts import (
    Part,
    Tally,
    intact_parts,
    remove_strangers,
    shard_name,
    split_entry,
    write_part,
)
from difftransformer.data.shards import token_dtype
from difftransformer.data.words import write_words
from difftransformer.provenance import atomic

_ROWS_AT_ONCE = 1 << 14


def pack_rows(dataset: DatasetConfig, output: Path, state: Path) -> Manifest:
    """Generate the rows of both splits; a budget of tokens counts targets (row_length - 1 a row).

    Each shard has a random stream of its own, so that an interrupted job goes on where it was.
    """
    settings = dataset.generated
    assert settings is not None and dataset.tokens is not None
    assert dataset.validation_budget is not None
    budgets = {"train": dataset.tokens, "validation": dataset.validation_budget}
    inputs = hashlib.sha256(
        json.dumps([dataset.model_dump(mode="json")], sort_keys=True).encode()
    ).hexdigest()
    parts = {}
    for split in SPLITS:
        rows = -(-budgets[split] // (settings.row_length - 1))
        parts[split] = _pack_split(dataset, split, rows, inputs, output, state)
    remove_strangers(output, [part for split in parts.values() for part in split])
    name = next(iter(dataset.sources))
    splits = {split: split_entry(parts[split]) for split in SPLITS}
    source = SourceEntry(
        kind="builtin",
        origin=f"{_kind(settings)} rows, seed {dataset.seed}",
        share=1.0,
        tokens={split: entry.tokens for split, entry in splits.items()},
        documents={split: entry.documents for split, entry in splits.items()},
        licences={"MIT": sum(entry.documents for entry in splits.values())},
    )
    return Manifest(
        vocab_size=settings.vocab_size,
        dtype=token_dtype(settings.vocab_size),
        tokenizer=write_words(output, settings),
        row_length=settings.row_length,
        answer_positions=_answers(settings),
        recall=dataset.recall,
        classification=dataset.classification,
        splits=splits,
        sources={name: source},
    )


def _pack_split(
    dataset: DatasetConfig, split: str, rows: int, inputs: str, output: Path, state: Path
) -> list[Part]:
    settings = dataset.generated
    assert settings is not None
    rows_per_shard = max(1, dataset.shard_tokens // settings.row_length)
    shards = -(-rows // rows_per_shard)
    parts = intact_parts(split, inputs, output, state)
    for index in range(len(parts), shards):
        here = min(rows_per_shard, rows - index * rows_per_shard)
        shard = _write_rows(dataset, split, index, here, output)
        tally = Tally(tokens=shard.tokens, documents=here, licences={"MIT": here})
        part = Part(
            inputs=inputs,
            shard=shard,
            tallies={next(iter(dataset.sources)): tally},
            taken=[],
            cursors=[],
            finished=index == shards - 1,
        )
        write_part(part, split, index, state)
        parts.append(part)
    return parts


def _write_rows(
    dataset: DatasetConfig, split: str, index: int, rows: int, output: Path
) -> ShardEntry:
    settings = dataset.generated
    assert settings is not None
    generator = np.random.default_rng([dataset.seed, SPLITS.index(split), index])
    dtype = np.dtype(token_dtype(settings.vocab_size)).newbyteorder("<")
    path = output / shard_name(split, index)
    digest = hashlib.sha256()
    with atomic.replacing(path) as aside, aside.open("wb") as stream:
        for start in range(0, rows, _ROWS_AT_ONCE):
            here = min(_ROWS_AT_ONCE, rows - start)
            content = _rows(settings, here, generator).astype(dtype).tobytes()
            digest.update(content)
            stream.write(content)
        retire_manifest(output)
    return ShardEntry(
        file=path.name,
        tokens=rows * settings.row_length,
        documents=rows,
        sha256=digest.hexdigest(),
    )


def _rows(settings: GeneratedRows, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Rows of either kind, [rows, row_length]."""
    if isinstance(settings, RecallConfig):
        return recall.training_rows(settings, rows, generator)
    return classification.training_rows(settings, rows, generator)


def _answers(settings: GeneratedRows) -> list[int]:
    if isinstance(settings, RecallConfig):
        return recall.answer_positions(settings.haystack_length, settings.num_queries)
    return classification.label_positions(settings)


def _kind(settings: GeneratedRows) -> str:
    return "recall" if isinstance(settings, RecallConfig) else "classification"
