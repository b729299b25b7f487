"""Trains in a process of its own and prints the estimated and the measured peak, in bytes."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from tiny_training import make_run_config, write_dataset

from difftransformer.config.run import RunConfig
from difftransformer.models.transformer import Transformer
from difftransformer.tracking.tracker import NullTracker
from difftransformer.training.memory import estimate_memory
from difftransformer.training.pretrain import pretrain


def peak(field: str = "VmHWM") -> int:
    """Not ru_maxrss, which a process takes over from the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def resident() -> int:
    """What there is now, from which the peak counts anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak("VmRSS")


def main(
    folder: Path, vocab_size: int, batch_size: int, seq_len: int, backend: str = "auto",
    activation_checkpointing: str = "none", checkpoint_every: int | None = None,
    **model: int,
) -> None:  # fmt: skip
    tokens = np.random.default_rng(0).integers(0, vocab_size, 3 * batch_size * (seq_len + 1))
    splits = {"train": tokens, "validation": tokens[: 2 * (seq_len + 1)]}
    dataset = write_dataset(folder / "data", splits, vocab_size=vocab_size)
    run_config = RunConfig.model_validate(
        {
            "scale": "unit", "run": "measured", "dataset": "random",
            "model": {
                "vocab_size": vocab_size, "max_positions": seq_len,
                "attention": {"variant": "diff_v1", "head_dim": 32}, **model,
            },
            "training": {
                "steps": 2, "seq_len": seq_len, "batch_size": batch_size, "lr": 1e-3,
                "warmup_steps": 1, "device": "cpu", "backend": backend,
                "activation_checkpointing": activation_checkpointing,
                "checkpoint_every": checkpoint_every,
            },
        }
    )  # fmt: skip
    small = Transformer.build(make_run_config().model, "cpu_dispatch", 0)
    small(torch.zeros(1, 8, dtype=torch.long)).sum().backward()  # loads what computes
    before = peak()
    pretrain(
        run_config, dataset=dataset, output=folder / "output", state=folder / "state", seed=0,
        threads=1, tracker=NullTracker(), code="",
    )  # fmt: skip
    estimated = estimate_memory(run_config, "cpu").peak
    print(json.dumps({"estimated": estimated, "measured": peak() - before}))


if __name__ == "__main__":
    os.fsync = lambda fd: None  # as in all other tests
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
