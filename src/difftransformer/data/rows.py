"""Generated rows packed into shards, with a word-level tokenizer.

In recall rows a key is a word such as ``k07``, a value ``v12``, a filler ``f63``. All words have
the same length, so none contains another and an answer is found by searching its word. In labeled
items a label is a word such as ``l07``, a word of class 12 is ``c12a``.
"""

from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig
from difftransformer.config.generated_rows import ClassificationConfig, GeneratedRows, RecallConfig
from difftransformer.data import classification, recall
from difftransformer.data.packed import (
    SPLITS,
    TOKENIZER,
    Manifest,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
)
from difftransformer.data.shards import (
    ShardCheckpoint,
    SourceCounts,
    completed_shards,
    save_checkpoint,
    shard_name,
    split_entry,
    token_dtype,
    write_tokens,
)
from difftransformer.data.tokenizer import write_tokenizer
from difftransformer.provenance.checksums import file_sha256, json_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_ROWS_AT_ONCE = 1 << 14
_LETTERS = {"fillers": "f", "keys": "k", "values": "v"}


def pack_rows(dataset: DatasetConfig, state: Path) -> Manifest:
    """Write generated rows and their tokenizer to the state folder; return the manifest.

    A budget of tokens counts targets, row_length - 1 per row. Each shard has its own random stream,
    so that an interrupted job resumes.
    """
    settings = dataset.generated
    assert settings is not None and dataset.tokens is not None
    assert dataset.validation_budget is not None
    budgets = {"train": dataset.tokens, "validation": dataset.validation_budget}
    inputs = json_digest([dataset.model_dump(mode="json")])
    rows = {split: -(-budget // (settings.row_length - 1)) for split, budget in budgets.items()}
    parts = {s: _pack_split(dataset, s, rows[s], inputs, state) for s in SPLITS}
    kind = "recall" if isinstance(settings, RecallConfig) else "classification"
    splits = {split: split_entry(parts[split]) for split in SPLITS}
    source = SourceEntry(
        kind="builtin",
        origin=f"{kind} rows, seed {dataset.seed}",
        share=1.0,
        tokens={split: entry.tokens for split, entry in splits.items()},
        documents={split: entry.documents for split, entry in splits.items()},
        licenses={"MIT": sum(entry.documents for entry in splits.values())},
    )
    return Manifest(
        vocab_size=settings.vocab_size,
        dtype=token_dtype(settings.vocab_size),
        tokenizer=write_words(state, settings),
        row_length=settings.row_length,
        answer_positions=_answers(settings),
        recall=dataset.recall,
        classification=dataset.classification,
        splits=splits,
        sources=dict.fromkeys(dataset.sources, source),
    )


def _pack_split(
    dataset: DatasetConfig, split: str, rows: int, inputs: str, state: Path
) -> list[ShardCheckpoint]:
    settings = dataset.generated
    assert settings is not None
    rows_per_shard = max(1, dataset.shard_tokens // settings.row_length)
    shards = -(-rows // rows_per_shard)
    parts = completed_shards(split, inputs, state)
    for index in range(len(parts), shards):
        count = min(rows_per_shard, rows - index * rows_per_shard)
        tokens, path = count * settings.row_length, state / shard_name(split, index)
        generator = np.random.default_rng([dataset.seed, SPLITS.index(split), index])
        pieces = _rows(settings, count, generator)
        sha256 = write_tokens(path, token_dtype(settings.vocab_size), pieces)
        tally = SourceCounts(tokens=tokens, documents=count, licenses={"MIT": count})
        part = ShardCheckpoint(
            inputs=inputs,
            shard=ShardEntry(file=path.name, tokens=tokens, documents=count, sha256=sha256),
            tallies=dict.fromkeys(dataset.sources, tally),
            consumed=[],
            cursors=[],
            finished=index == shards - 1,
        )
        save_checkpoint(part, split, index, state)
        parts.append(part)
    return parts


def _rows(
    settings: GeneratedRows, rows: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield rows in chunks, [.., row_length]."""
    for start in range(0, rows, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, rows - start)
        if isinstance(settings, RecallConfig):
            yield recall.training_rows(settings, count, generator)
        else:
            yield classification.training_rows(settings, count, generator)


def _answers(settings: GeneratedRows) -> list[int]:
    if isinstance(settings, RecallConfig):
        return recall.answer_positions(settings.haystack_length, settings.num_queries)
    return classification.label_positions(settings)


def row_words(settings: GeneratedRows) -> list[str]:
    """Return the word of each token id in generated rows."""
    return recall_words(settings) if isinstance(settings, RecallConfig) else item_words(settings)


def item_words(settings: ClassificationConfig) -> list[str]:
    """Return the word of each token id in classification rows: labels, then each class's words."""
    labels, classes, words = settings.num_labels, settings.num_classes, settings.words_per_class
    names = list(ascii_lowercase[:words])
    if words > len(ascii_lowercase):
        names = [f"_{word}" for word in range(words)]
    numbered = [f"{number:0{len(str(classes - 1))}d}" for number in range(classes)]
    return [
        *(f"l{label:0{len(str(labels - 1))}d}" for label in range(labels)),
        *(f"c{number}{name}" for number in numbered for name in names),
    ]


def recall_words(settings: RecallConfig) -> list[str]:
    """Return the word of each token id in retrieval rows.

    A word is a letter for the range, followed by the number in the range.
    """
    vocabulary = recall.RecallVocabulary.of(settings)
    digits = len(str(max(map(len, vocabulary)) - 1))
    return [
        f"{_LETTERS[name]}{number:0{digits}d}"
        for name, ids in zip(vocabulary._fields, vocabulary, strict=True)
        for number in range(len(ids))
    ]


def word_tokenizer(settings: GeneratedRows) -> "Tokenizer":
    """Return the tokenizer of generated rows.

    It splits text into words at white space and decodes with blanks between words.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: index for index, word in enumerate(row_words(settings))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def write_words(folder: Path, settings: GeneratedRows) -> TokenizerEntry:
    """Write tokenizer.json and tokenizer_config.json into ``folder``; return the manifest entry."""
    path = folder / TOKENIZER
    write_tokenizer(path, word_tokenizer(settings), {"kind": "words"})
    return TokenizerEntry(kind="words", sha256=file_sha256(path))
