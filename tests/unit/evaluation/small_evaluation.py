"""Tiny datasets, scripted models and a folder as training leaves it."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.config.generated_rows import ClassificationConfig, RecallConfig
from difftransformer.convert.checkpoint import save_model
from difftransformer.data.classification import label_positions
from difftransformer.data.classification import training_rows as labeled_rows
from difftransformer.data.packed import (
    Manifest,
    PackedDataset,
    ShardEntry,
    SplitEntry,
    TokenizerEntry,
)
from difftransformer.data.recall import answer_positions, training_rows
from difftransformer.data.rows import write_words
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics
from difftransformer.evaluation.evaluate import evaluate
from difftransformer.evaluation.identity import identify
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.checksums import read_checked, write_checked
from difftransformer.provenance.result import PerItemScores, Result, origin, write_result
from difftransformer.reporting.document import SeedValue
from difftransformer.reporting.pairing import item_contributions
from difftransformer.tracking.run_context import Job, JobIdentity
from difftransformer.tracking.tracker import NullTracker, Tracker

VOCAB = 16
MAX_POSITIONS = 40
RECALL = RecallConfig(
    row_length=33, num_keys=8, num_values=8, num_fillers=16, max_needles=2, num_queries=4
)

ITEMS = ClassificationConfig(items=6, num_classes=6, words_per_class=3, num_labels=8, max_classes=6)


def model_config(vocab_size: int, max_positions: int = MAX_POSITIONS) -> ModelConfig:
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=16,
        num_layers=1,
        ffn_dim=32,
        attention={"variant": "diff_v1", "head_dim": 4},
        max_positions=max_positions,
        embedding_std=1.0,
    )


class Scripted(nn.Module):
    """A model that gives one token all the weight: ``rule(tokens [B, T]) -> tokens [B, T]``."""

    def __init__(self, rule: Callable[[Tensor], Tensor], vocab_size: int) -> None:
        super().__init__()
        self.config = model_config(vocab_size)
        self.vocab_size, self.max_positions = vocab_size, self.config.max_positions
        self.output_weight = torch.eye(vocab_size)
        self._rule = rule

    def hidden_states(self, tokens: Tensor, *, cache: Any = None) -> Tensor:
        return 20.0 * nn.functional.one_hot(self._rule(tokens), self.config.vocab_size).float()


class Remembering(Scripted):
    """A scripted model that works with a real cache, by keeping the tokens in it as keys."""

    def hidden_states(self, tokens: Tensor, *, cache: Any = None) -> Tensor:
        if cache is None:
            return super().hidden_states(tokens)
        keys = tokens[:, None, :, None]
        everything, _ = cache.update(keys, keys, 0)
        return super().hidden_states(everything[:, 0, :, 0])[:, -tokens.shape[1] :]


class Uniform(Scripted):
    """A model that finds every token equally likely."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(lambda tokens: tokens, vocab_size)

    def hidden_states(self, tokens: Tensor, *, cache: Any = None) -> Tensor:
        return torch.zeros(*tokens.shape, self.config.vocab_size)


def copy_what_followed(tokens: Tensor) -> Tensor:
    """After each token, what followed its first occurrence in the row; 0 at a first one."""
    out = torch.zeros_like(tokens)
    for row, answers in zip(tokens.tolist(), out, strict=True):
        for t, token in enumerate(row):
            first = row.index(token)
            answers[t] = row[first + 1] if first < t else 0
    return out


def scorer(model: nn.Module) -> Scorer:
    return Scorer(model, torch.device("cpu"))


def eval_context(model: Scorer, dataset: PackedDataset, ngrams: Path | None = None) -> EvalContext:
    """A model on a dataset, for suites that leave no files."""
    nowhere = Path("never written")
    return EvalContext(model, dataset, model.device, ngrams, details=nowhere, state=nowhere, seed=0)


def running(identity: JobIdentity, tracker: Tracker | None = None) -> Job:
    """A job without a lock or a log."""
    return Job(identity, tracker or NullTracker(), datetime.now(UTC))


def evaluate_as_job(
    slice: EvaluationConfig,
    output: Path,
    *,
    model: Path | None = None,
    dataset: Path | None = None,
    ngrams: Path | None = None,
    seed: int = 3,
    threads: int = 1,
    tracker: Tracker | None = None,
    code: str = "c",
) -> Path:
    """Evaluate as the command does; returns the folder of the details."""
    opened = None if dataset is None else PackedDataset.open(dataset)
    inputs: dict[str, Any] = {"model": model, "dataset": opened, "ngrams": ngrams}
    identity = identify(slice, **inputs, seed=seed, threads=threads, code=code)
    details, state = output.with_suffix(".details"), output.with_suffix(".state")
    job = running(identity, tracker)
    evaluate(slice, **inputs, output=output, details=details, state=state, job=job)
    return details


def no_tokenizer(folder: Path) -> None:
    """Write a file that stands where a tokenizer does, for what only copies it."""
    (folder / "tokenizer.json").write_text('{"made": "by hand"}')


def write_text(
    folder: Path,
    documents: list[list[int]],
    vocab_size: int,
    write_tokenizer: Callable[[Path], object] = no_tokenizer,
) -> Path:
    """A text dataset whose two splits are the same documents, with a tokenizer of its own."""
    (folder / "shards").mkdir(parents=True)
    tokens = np.array([token for document in documents for token in document])
    np.save(folder / "shards" / "ends.npy", np.cumsum([len(document) for document in documents]))
    write_tokenizer(folder)
    tokenizer = TokenizerEntry(kind="bpe", sha256=_sha256(folder / "tokenizer.json"), eos_id=0)
    entry = _split(folder, "tokens.bin", tokens, len(documents), "ends.npy")
    splits = {"train": entry, "validation": entry}
    return _write_manifest(
        folder,
        Manifest(
            vocab_size=vocab_size, dtype="uint16", tokenizer=tokenizer, splits=splits, sources={}
        ),
    )


def write_recall(folder: Path, recall: RecallConfig = RECALL) -> Path:
    """A recall dataset of a few rows."""
    folder.mkdir()
    rows = training_rows(recall, 12, np.random.default_rng(0))
    entry = _split(folder, "rows.bin", rows.reshape(-1), len(rows), None)
    return _write_manifest(
        folder,
        Manifest(
            vocab_size=recall.vocab_size,
            dtype="uint16",
            tokenizer=write_words(folder, recall),
            row_length=recall.row_length,
            answer_positions=answer_positions(recall.haystack_length, recall.num_queries),
            splits={"train": entry, "validation": entry},
            sources={},
            recall=recall,
        ),
    )


def write_labeled_items(folder: Path) -> Path:
    """A dataset of a few rows of labeled items."""
    folder.mkdir()
    rows = labeled_rows(ITEMS, 12, np.random.default_rng(0))
    entry = _split(folder, "rows.bin", rows.reshape(-1), len(rows), None)
    return _write_manifest(
        folder,
        Manifest(
            vocab_size=ITEMS.vocab_size,
            dtype="uint16",
            tokenizer=write_words(folder, ITEMS),
            row_length=ITEMS.row_length,
            answer_positions=label_positions(ITEMS),
            splits={"train": entry, "validation": entry},
            sources={},
            classification=ITEMS,
        ),
    )


def save_run(
    folder: Path, vocab_size: int, *, dataset: Path, seed: int = 3, **settings: Any
) -> Path:
    """The folder of a finished training, its weights fresh."""
    config = replace(model_config(vocab_size), **settings)
    model = Transformer.build(config, "sdpa", seed)
    save_model(folder, model, model.config)
    if (dataset / "tokenizer.json").is_file():
        shutil.copy(dataset / "tokenizer.json", folder)
    digest = PackedDataset.open(dataset).digest
    result = Result(
        kind="training",
        job_id=f"pretrain-diff-{seed}-{digest[:10]}",
        scale="unit",
        run="diff",
        seed=seed,
        metrics={},
        settings={
            "model": asdict(model.config),
            "training": {"batch_size": 2, "seq_len": 8, "lr": 1e-3, "precision": "fp32"},
        },
        provenance=origin(digest, started=datetime.now(UTC), threads=1),
    )
    write_result(folder / "training.json", result, list(folder.iterdir()))
    return folder


def republish(run: Path, **changes: dict[str, Any]) -> None:
    """Publish a training again as it lies there now, some entries of its result changed."""
    content = json.loads(read_checked(run / "training.json"))
    for name, change in changes.items():
        content[name] |= change
    beside = [path for path in run.rglob("*") if path.is_file() and path.name != "training.json"]
    write_checked(run / "training.json", content, beside)


def _split(
    folder: Path, name: str, tokens: np.ndarray, documents: int, ends: str | None
) -> SplitEntry:
    shards = folder / "shards"
    shards.mkdir(exist_ok=True)
    tokens.astype("<u2").tofile(shards / name)
    shard = ShardEntry(
        file=name,
        tokens=len(tokens),
        documents=documents,
        sha256=_sha256(shards / name),
        offsets_file=ends,
        offsets_sha256=_sha256(shards / ends) if ends else None,
    )
    return SplitEntry(tokens=len(tokens), documents=documents, shards=[shard])


def _write_manifest(folder: Path, manifest: Manifest) -> Path:
    signed = manifest.model_copy(update={"digest": manifest.content_digest()})
    (folder / "manifest.json").write_text(signed.model_dump_json())
    return folder


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metrics_of(result: EvalResult) -> Metrics:
    """Metrics of a result, after checking that per-item scores sum to them."""
    for name, per_item in result.per_item.items():
        value = result.metrics[name]
        if value is not None:
            seed = SeedValue(seed=0, value=value, text="", job_ids=[name], per_item=per_item)
            item_contributions(seed)
    return result.metrics


def sizes(per_item: PerItemScores) -> list[tuple[str, int]]:
    """Sets of per_item with their numbers."""
    return [(term.item_set, len(term.values)) for term in per_item.terms]
