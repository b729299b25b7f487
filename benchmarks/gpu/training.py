"""The trainer itself with the models of scale gpu: speed, memory beside the plan's, and its bits.

A run of 135M parameters on random tokens, as the workflow starts it: compiled, bf16, checkpoints
and all. To reach: a peak within 15% of what the plan foresees, and, where bits are to repeat, the
same weights from a training that was stopped and went on.
"""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from models import resolver, share_of_peak
from runs import Answer, Questions, Setting, main, spread

ROWS = ("transformer", "diff")
STEPS, LOGGED, STOPPED = 28, 4, 8


def questions(setting: Setting) -> Questions:
    """Speed and memory of each row; the bits of one."""
    return {row: partial(speed, setting, row) for row in ROWS} | {
        "bits": partial(bits, setting, ROWS[-1])
    }


def ahead(setting: Setting) -> Questions:
    """Two steps of each row by what `auto` may take, which compile all."""
    names = setting.sized(("sdpa", "fused"), ("sdpa",))
    return {f"{row} {one}": partial(begin, setting, row, one) for row in ROWS for one in names}


def begin(setting: Setting, row: str, backend: str) -> Answer:
    """Train for a moment."""
    slice = sliced(setting, row, steps=2, log_every=1, backend=backend)
    with folder(slice) as home:
        train(slice, home)
    return {}


def speed(setting: Setting, row: str) -> Answer:
    """Tokens a second between two rows of the history, and the peak beside the estimate."""
    import torch

    from difftransformer.training.memory import estimate_memory

    slice = sliced(setting, row, validate_every=None, checkpoint_every=None)
    estimate = estimate_memory(slice, setting.device)
    with folder(slice) as home:
        if setting.device == "cuda":
            torch.cuda.empty_cache()
            before, kept = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
            torch.cuda.reset_peak_memory_stats()
        points = train(slice, home)
        on_card = setting.device == "cuda"
        peak = torch.cuda.max_memory_allocated() - before if on_card else None
        reserved = torch.cuda.max_memory_reserved() - kept if on_card else None
    # The first steps compile, and behind the last is a validation.
    tokens = LOGGED * slice.training.tokens_per_step
    speeds = spread([tokens / (b - a) for a, b in pairwise(points[1:-1])])
    return {
        "tokens_per_second": speeds,
        "share_of_peak": share_of_peak(
            setting, slice.model, slice.training.seq_len, speeds["median"]
        ),
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "foreseen_bytes": round(estimate.peak),
    }


def bits(setting: Setting, row: str) -> Answer:
    """Whether a training that is stopped and goes on ends with the bits of one that is not."""
    from difftransformer.models.device import set_deterministic
    from difftransformer.training.interrupt import Interrupted

    slice = sliced(setting, row, deterministic=True, checkpoint_every=LOGGED)
    weights, stopped = [], False
    try:
        for stop in (None, STOPPED):
            with folder(slice) as home:
                try:
                    train(slice, home, stop=stop)
                except Interrupted:
                    stopped = True
                    train(slice, home)
                weights.append((home / "out/model.safetensors").read_bytes())
    finally:
        set_deterministic(False, compiled=slice.training.compile)
    return {"was_stopped": stopped, "same_weights": weights[0] == weights[1]}


def sliced(setting: Setting, row: str, **training: Any) -> Any:
    """A run of scale gpu, or on a CPU of scale smoke, with a short budget."""
    run = resolver(setting.sized("gpu", "smoke")).run(row)
    short = {"tokens": None, "steps": STEPS, "warmup_steps": 2, "save_checkpoints_at": []}
    config = run.training.model_copy(
        update=short | {"log_every": LOGGED, "validation_tokens": 2**15} | training
    )
    return run.model_copy(update={"training": config})


@contextmanager
def folder(slice: Any) -> Iterator[Path]:
    """A folder with a data set of random tokens, gone afterwards."""
    import numpy as np

    from difftransformer.data.packed import Manifest, ShardEntry, SplitEntry, TokenizerEntry
    from difftransformer.data.shards import token_dtype, write_tokens

    config, vocab_size = slice.training, slice.model.vocab_size
    draw, dtype = np.random.default_rng(0), token_dtype(slice.model.vocab_size)
    sizes = {"train": STEPS * config.tokens_per_step, "validation": config.validation_tokens}
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        shards = home / "data/shards"
        shards.mkdir(parents=True)
        splits = {}
        for split, size in sizes.items():
            tokens, name = draw.integers(0, vocab_size, size + 2 * config.seq_len), f"{split}.bin"
            digest = write_tokens(shards / name, dtype, [tokens])
            shard = ShardEntry(file=name, tokens=tokens.size, documents=1, sha256=digest)
            splits[split] = SplitEntry(tokens=tokens.size, documents=1, shards=[shard])
        manifest = Manifest(
            dtype=dtype,
            vocab_size=vocab_size,
            splits=splits,
            sources={},
            tokenizer=TokenizerEntry(kind="none"),
        )
        manifest = manifest.model_copy(update={"digest": manifest.content_digest()})
        (home / "data/manifest.json").write_text(manifest.model_dump_json())
        yield home


def train(slice: Any, home: Path, *, stop: int | None = None) -> list[float]:
    """Train as the workflow does; return when each row of the history was there."""
    from difftransformer.machine import gpus
    from difftransformer.tracking.tracker import NullTracker
    from difftransformer.training.pretrain import pretrain

    os.environ.setdefault(gpus.RESERVED, "0")  # whoever calls this has the card
    points: list[float] = []

    class Points(NullTracker):
        def log_metrics(self, values: Any, step: int) -> None:
            if "grad_norm" not in values:
                return
            points.append(time.monotonic())  # the loss was read: the device has done the step
            if step == stop:
                os.kill(os.getpid(), signal.SIGTERM)

    pretrain(
        slice,
        dataset=home / "data",
        output=home / "out",
        state=home / "state",
        seed=0,
        threads=4,
        tracker=Points(),
        code="benchmark",
    )
    return points


if __name__ == "__main__":
    main("training", __doc__, questions)
