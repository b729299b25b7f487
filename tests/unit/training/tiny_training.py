"""Tiny corpora, a tiny model and one call that trains it: milliseconds a step."""

import csv
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.config.run import RunConfig
from difftransformer.data.packed import Manifest, ShardEntry, SplitEntry, TokenizerEntry
from difftransformer.tracking.tracker import NullTracker, Tracker
from difftransformer.training.pretrain import pretrain

VOCAB = 64
RECALL = RecallConfig(
    row_length=25, num_keys=8, num_values=8, num_fillers=16, max_needles=2, num_queries=4
)

Train = Callable[..., Path]


def train_in(home: Path, text: Path) -> Train:
    """Return what trains or adapts in ``home/name`` and gives that folder."""

    def run(
        run_config: RunConfig,
        name: str = "run",
        *,
        dataset: Path = text,
        seed: int = 0,
        tracker: Tracker | None = None,
        from_scratch: bool = False,
        parent: Path | None = None,
        mirror: str = "",
    ) -> Path:
        folder, does = home / name, pretrain
        if run_config.adapt is not None:  # imports transformers, which the core does without
            from difftransformer.training.adapt import adapt as does
        does(
            run_config,
            model=None if parent is None else parent / "out",
            dataset=dataset,
            output=folder / "out",
            state=folder / "state",
            seed=seed,
            threads=1,
            tracker=tracker or NullTracker(),
            code="unit test",
            from_scratch=from_scratch,
            mirror=mirror,
        )
        return folder

    return run


def make_run_config(
    variant: str = "diff_v1", vocab_size: int = VOCAB, **training: Any
) -> RunConfig:
    """A resolved run of two layers, d_model 32; keywords change its training."""
    defaults = {
        "steps": 8,
        "seq_len": 16,
        "batch_size": 16,
        "lr": 1e-2,
        "warmup_steps": 2,
        "log_every": 2,
        "device": "cpu",
    }
    return RunConfig.model_validate(
        {
            "scale": "unit",
            "run": variant,
            "dataset": "tiny",
            "model": {
                "vocab_size": vocab_size,
                "d_model": 32,
                "num_layers": 2,
                "ffn_dim": 64,
                "attention": {"variant": variant, "head_dim": 8},
                "max_positions": 32,
            },
            "training": defaults | training,
        }
    )


def write_dataset(folder: Path, splits: dict[str, np.ndarray], **manifest: Any) -> Path:
    """A dataset folder as `tokenize` leaves it, of given tokens."""
    (folder / "shards").mkdir(parents=True)
    entries = {}
    for name, tokens in splits.items():
        path = folder / "shards" / f"{name}.bin"
        tokens.astype("<u2").tofile(path)
        count = tokens.size // manifest.get("row_length", tokens.size)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        shard = ShardEntry(file=path.name, tokens=tokens.size, documents=count, sha256=digest)
        entries[name] = SplitEntry(tokens=tokens.size, documents=count, shards=[shard])
    defaults: dict[str, Any] = {"tokenizer": TokenizerEntry(kind="none")}
    written = Manifest(dtype="uint16", splits=entries, sources={}, **(defaults | manifest))
    written = written.model_copy(update={"digest": written.content_digest()})
    (folder / "manifest.json").write_text(written.model_dump_json())
    return folder


def history(folder: Path) -> list[dict[str, str]]:
    with (folder / "out" / "history.csv").open() as file:
        return list(csv.DictReader(file))


def column(folder: Path, name: str) -> list[float]:
    return [float(row[name]) for row in history(folder) if row[name]]
