"""Tokenizes and packs a dataset into shards: streaming, parallel, resumable.

Documents are encoded in parallel and mixed in an order that depends only on the tokens before (see
mixture), so the bytes are the same for any number of workers and restarts.
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Cursor, Source, empty_split_message
from difftransformer.data.mixture import MixedDocument, MixedStream, Mixture, upsample
from difftransformer.data.overlap import drop_overlapping, read_shard
from difftransformer.data.packed import (
    SPLITS,
    TOKENIZER,
    Manifest,
    PackedDataset,
    SourceEntry,
    Truncated,
)
from difftransformer.data.parallel_encoding import encode_documents
from difftransformer.data.readers import SUFFIXES, conversion_hint
from difftransformer.data.rows import pack_rows
from difftransformer.data.shards import (
    ShardCheckpoint,
    SourceCounts,
    completed_shards,
    remove_stale,
    save_checkpoint,
    shard_name,
    split_entry,
    token_dtype,
    write_shard,
)
from difftransformer.data.sources import Files, open_sources
from difftransformer.data.tokenizer import CONFIG, TextTokenizer
from difftransformer.data.windows import excerpts
from difftransformer.errors import ConfigError, DataError
from difftransformer.provenance import atomic
from difftransformer.provenance.checksums import json_digest
from difftransformer.provenance.layout import MANIFEST, SHARDS

_log = logging.getLogger(__name__)
_LOG_INTERVAL = 5.0
_MAX_NAMES = 5


class _Job(NamedTuple):
    """Constants of one call of `tokenize`."""

    dataset: DatasetConfig
    sources: dict[str, Source]
    tokenizer: TextTokenizer
    state: Path
    workers: int
    pool: ThreadPoolExecutor
    inputs: str


def tokenize(
    dataset: DatasetConfig, tokenizer: Path | None, output: Path, state: Path, workers: int
) -> None:
    """Tokenize a dataset: write its shards and tokenizer, and its manifest.json last.

    Args:
        dataset: The dataset's settings.
        tokenizer: Path of the tokenizer.json from `train_tokenizer`; None for generated rows.
        output: Folder of the dataset, unchanged until all shards are finished.
        state: Folder of shards in progress and checkpoints, from which a killed job resumes.
        workers: Number of encoding threads, which does not change the result.

    Raises:
        DataError: A source, a file or the tokenizer is missing, empty or damaged.
        ConfigError: A text dataset has no tokenizer, or generated rows have one.
    """
    if (tokenizer is None) != (dataset.generated is not None):
        needed = "a tokenizer (`train_tokenizer`)" if tokenizer is None else "no tokenizer"
        raise ConfigError(f"dataset.tokenizer: kind {dataset.tokenizer.kind} needs {needed}")
    assert workers > 0
    for folder in (output, state):
        folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is None:
        manifest = pack_rows(dataset, state)
    else:
        manifest = _pack_text(dataset, tokenizer, state, workers)
    manifest = manifest.model_copy(update={"digest": manifest.content_digest()})
    _publish(manifest, tokenizer or state / TOKENIZER, output, state)
    PackedDataset.open(output)
    for split, entry in manifest.splits.items():
        _log.info("%s: %d tokens in %d documents", split, entry.tokens, entry.documents)


def _publish(manifest: Manifest, tokenizer: Path, output: Path, state: Path) -> None:
    """Link and copy the files into the dataset's folder, the manifest last."""
    shards = {
        name
        for split in manifest.splits.values()
        for shard in split.shards
        for name in shard.digests
    }
    (output / MANIFEST).unlink(missing_ok=True)  # it may describe other files
    (output / SHARDS).mkdir(exist_ok=True)
    for folder in (state, output / SHARDS):
        remove_stale(folder, shards)
    for name in sorted(shards):
        atomic.link(state / name, output / SHARDS / name)
    for path in (tokenizer.with_name(CONFIG), tokenizer):
        # Copied: Snakemake touches outputs, which would touch the input of a link, too.
        atomic.write_bytes(output / path.name, path.read_bytes())
    atomic.write_text(output / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def _pack_text(dataset: DatasetConfig, tokenizer: Path, state: Path, workers: int) -> Manifest:
    opened = TextTokenizer(tokenizer)
    sources = open_sources(dataset)
    _log_skipped_files(sources)
    identities = {name: source.identity() for name, source in sources.items()}
    inputs = json_digest([dataset.model_dump(mode="json"), opened.entry.sha256, identities])
    parts: dict[str, list[ShardCheckpoint]] = {}
    blank: dict[str, list[int]] = {}
    # The tokenizers library would start its own threads.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    with ThreadPoolExecutor(workers, "encoder") as pool:
        job = _Job(dataset, sources, opened, state, workers, pool, inputs)
        for split in SPLITS:
            parts[split], blank[split] = _pack_split(job, split, parts.get("train", []))
    for name, source in sources.items():
        if source.identity() != identities[name]:
            raise DataError(f"source {name}: its files changed while they were packed: run again")
    return Manifest(
        vocab_size=opened.vocab_size,
        dtype=token_dtype(opened.vocab_size),
        tokenizer=opened.entry,
        splits={split: split_entry(parts[split]) for split in SPLITS},
        sources=_source_entries(job, parts, blank),
        overlap=parts["validation"][-1].overlap,
    )


def _pack_split(
    job: _Job, split: str, training: list[ShardCheckpoint]
) -> tuple[list[ShardCheckpoint], list[int]]:
    """Write the shards of a split; return their checkpoints, and blank documents by source."""
    budget = job.dataset.tokens if split == "train" else job.dataset.validation_budget
    parts = completed_shards(split, job.inputs, job.state)
    if parts and parts[-1].finished:
        return parts, parts[-1].blank
    if split == "validation":
        parts = []  # deduplication needs all documents
    stream = _open_stream(job, split, budget, parts[-1] if parts else None)
    progress = _Progress(f"tokenize {split}", budget, stream.total)
    dtype, names = token_dtype(job.tokenizer.vocab_size), list(job.sources)
    documents: Iterator[MixedDocument] = stream
    total, overlap = budget, None
    if split == "validation" and (held_out := list(stream)):
        shards = [read_shard(job.state, part.shard, dtype) for part in training]
        clean, overlap = drop_overlapping(held_out, shards, job.dataset, job.tokenizer.vocab_size)
        documents, total = iter(clean), sum(len(document.tokens) for document in clean)
    done = sum(part.shard.tokens for part in parts)
    while True:
        path = job.state / shard_name(split, len(parts))
        written = write_shard(documents, path, dtype, job.dataset.shard_tokens, names)
        if written is None:
            break
        shard, tallies = written
        done += shard.tokens
        part = ShardCheckpoint(
            inputs=job.inputs,
            shard=shard,
            tallies=tallies,
            consumed=stream.mixture.consumed,
            cursors=[list(cursor) for cursor in stream.cursors],
            blank=stream.blank,
            overlap=overlap,
            finished=done == total,
        )
        save_checkpoint(part, split, len(parts), job.state)
        parts.append(part)
        progress.report(done)
    if not parts:
        raise DataError(empty_split_message(job.dataset, job.dataset.sources, split))
    _log_shortfall(job, split, budget, stream, parts)
    return parts, stream.blank


def _open_stream(
    job: _Job, split: str, budget: int | None, last: ShardCheckpoint | None
) -> MixedStream:
    weights = [source.weight for source in job.sources.values()]
    cursors = [Cursor(*cursor) for cursor in last.cursors] if last else [Cursor()] * len(weights)
    streams = []
    for (name, source), cursor in zip(job.sources.items(), cursors, strict=True):
        # Enough blocks to keep all workers busy, divided by weight to bound memory.
        share = round(2 * job.workers * source.weight / sum(weights))
        ahead = 1 if job.workers == 1 else 1 + max(1, share)
        documents = excerpts(job.dataset, name, source, split, cursor)
        cuts = job.dataset.long_documents == "cut"
        longest = job.dataset.longest(split)
        encoded = encode_documents(documents, job.tokenizer, job.pool, ahead, longest, cuts)
        upsampling = job.dataset.upsampling if split == "train" else None
        streams.append(upsample(encoded, upsampling, job.dataset.seed) if upsampling else encoded)
    mixture = Mixture(weights, last.consumed if last else None)
    return MixedStream(streams, mixture, budget, cursors, last.blank if last else None)


def _log_skipped_files(sources: dict[str, Source]) -> None:
    for name, source in sources.items():
        if not isinstance(source, Files):
            continue
        unsupported, hidden = source.skipped_files
        if unsupported:
            endings = sorted({path.suffix or "none" for path in unsupported})
            _log.info(
                "source %s: skipped %d files with other endings (%s); supported are %s%s",
                *(name, len(unsupported), _join_names(endings), SUFFIXES, conversion_hint(endings)),
            )
        if hidden:
            _log.info(
                "source %s: skipped %d hidden files, hidden folders and broken links (%s)",
                *(name, len(hidden), _join_names(map(str, hidden))),
            )


def _join_names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_MAX_NAMES]) + (", ..." if len(listed) > _MAX_NAMES else "")


def _log_shortfall(
    job: _Job, split: str, budget: int | None, stream: MixedStream, parts: list[ShardCheckpoint]
) -> None:
    dataset, left = job.dataset, sum(part.shard.tokens for part in parts)
    cut = sum(tally.truncated.tokens for part in parts for tally in part.tallies.values())
    if budget is None:
        return
    limit = "max_document_tokens"
    if split == "validation" and dataset.longest_held_out != dataset.max_document_tokens:
        limit = "max_validation_document_tokens"
    for source, cursor in zip(job.sources.values(), stream.cursors, strict=True):
        if isinstance(source, Files) and split == "train" and stream.total == budget:
            _log_unread(source, cursor, budget)
    cures = [f"raise {limit} ({dataset.longest(split)}) or set long_documents: split"] * (cut > 0)
    for name, ended in zip(job.sources, stream.mixture.exhausted, strict=True):
        if ended:
            _log.warning("%s: source %s is exhausted before the budget of tokens", split, name)
    if split == "validation" and 2 * left < budget:
        loosen = ["loosen near_duplicates or max_overlap"] * (left < stream.total)
        raised = f"raise validation_share ({dataset.validation_share:g})"
        _log.warning(
            "validation: %d tokens are left, the budget was %d: %s",
            *(left, budget, f"{', '.join([*cures, 'add text', *loosen])}, or {raised}"),
        )
    elif stream.total < budget:
        _log.warning(
            "%s: %d tokens, the budget was %d: %s",
            *(split, stream.total, budget, ", or ".join([*cures, "add text"])),
        )


def _log_unread(source: Files, cursor: Cursor, budget: int) -> None:
    """Warn that a budget leaves the last files, ordered by name, unread."""
    files = source.training_files
    if cursor.repeat == cursor.window == 0 and cursor.file + 1 < len(files):
        _log.warning(
            "train: the budget of %d tokens ends in %s, file %d of %d by name: the rest is not "
            "read; raise `tokens`, or define several sources, which are mixed by weight",
            *(budget, files[cursor.file], cursor.file + 1, len(files)),
        )


def _source_entries(
    job: _Job, parts: dict[str, list[ShardCheckpoint]], blank: dict[str, list[int]]
) -> dict[str, SourceEntry]:
    trained = sum(part.shard.tokens for part in parts["train"])
    entries = {}
    for number, (name, source) in enumerate(job.sources.items()):
        tallies = {split: [part.tallies[name] for part in parts[split]] for split in SPLITS}
        tokens = {split: sum(tally.tokens for tally in tallies[split]) for split in SPLITS}
        licenses = Counter[str]()
        for tally in chain.from_iterable(tallies.values()):
            licenses.update(tally.licenses)
        entries[name] = SourceEntry(
            kind=source.kind,
            origin=source.origin,
            share=round(tokens["train"] / trained, 6),
            tokens=tokens,
            documents={s: sum(tally.documents for tally in tallies[s]) for s in SPLITS},
            licenses=dict(sorted(licenses.items())),
            truncated={split: _truncated(tallies[split]) for split in SPLITS},
            blank=sum(counts[number] for counts in blank.values()),
        )
        _log.info("source %s: share of training tokens %.4f", name, entries[name].share)
        _log_truncated(name, entries[name])
    return entries


def _truncated(tallies: list[SourceCounts]) -> Truncated:
    return Truncated(
        documents=sum(tally.truncated.documents for tally in tallies),
        tokens=sum(tally.truncated.tokens for tally in tallies),
    )


def _log_truncated(name: str, entry: SourceEntry) -> None:
    for split, cut in entry.truncated.items():
        share = cut.tokens / max(1, cut.tokens + entry.tokens[split])
        if cut.documents:
            _log.log(
                logging.WARNING if share > 0.5 and split == "train" else logging.INFO,
                "source %s: %d of %d documents (%s) are truncated: %.1f%% of their text, about %d "
                "tokens",
                *(name, cut.documents, entry.documents[split], split, 100 * share, cut.tokens),
            )
    if entry.blank:
        _log.info("source %s: %d documents without text (blank or null)", name, entry.blank)


class _Progress:
    """Logs tokens, speed and ETA every few seconds.

    Without a known total there is no ETA; ``done`` are the tokens of an interrupted job.
    """

    def __init__(self, label: str, total: int | None, done: int) -> None:
        self._label, self._total, self._initial = label, total, done
        self._started = self._last_log = time.monotonic()

    def report(self, done: int) -> None:
        """Report the number of tokens so far."""
        now = time.monotonic()
        if now - self._last_log < _LOG_INTERVAL:
            return
        self._last_log = now
        speed = (done - self._initial) / (now - self._started)
        of = eta = ""
        if self._total is not None:
            left = (self._total - done) / speed if speed else float("inf")
            of, eta = f" of {self._total / 1e6:.2f}M", f", ETA {left:.0f} s"
        _log.info(
            "%s: %.2fM%s tokens, %.0fk tok/s%s", self._label, done / 1e6, of, speed / 1e3, eta
        )
