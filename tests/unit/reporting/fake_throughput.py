"""Results of timings, with the shape of real ones."""

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from fake_configs import timed_rows
from fake_v2 import MORE_WORK, ROWS

SHAPES = {"short": (128, 16), "long": (1024, 2)}
TRAINED_SIZES = (64, 8)
SPEED = {
    "transformer": 1.0, "transformer_halved_heads_groupnorm": 0.98, "diff": 0.93,
    "transformer_gqa": 1.02, "diff_gqa": 0.95, "diff_v2": 0.9, "dint": 0.88, "shared_diff": 0.92,
    "dex_s_gqa": 0.96,
}  # fmt: skip
PROCESSES, REPEATS = 5, 3
ROUNDS = list(product(range(PROCESSES), range(REPEATS)))
DISTURBED = (1.5, 1.0, 0.75)
"""How many times as long the rounds of a process take: all that is in one alike."""
Changes = Mapping[str, Sequence[float | None]]


def throughput(fake: Any, slow: float = 1.0, changes: Changes | None = None) -> None:
    """Write the one result; DIFF is ``slow`` times as fast as otherwise.

    ``changes`` gives the middle seconds of each process by the rest of their name.
    """
    noise = random.Random("throughput")
    metrics: dict[str, float | None] = {}
    rows = _with_others(SPEED, "throughput")
    own = (*ROWS, *(f"{row}_equal_flops" for row in MORE_WORK))
    timed = [(shape, row) for shape in SHAPES for row in rows]
    timed += [("trained_sizes", row) for row in _with_others(own, "throughput", trained_sizes=True)]
    for (shape, row), (backend, gain) in product(timed, (("blocked", 1.1), ("sdpa", 1.0))):
        length, batch = SHAPES.get(shape, TRAINED_SIZES)
        for mode, base in (("training", 20_000), ("forward", 60_000)):
            key = f"{shape}/{row}/{backend}/{mode}"
            mean = base * SPEED.get(row, 0.8) * gain * (slow if row == "diff" else 1.0)
            for process, number in ROUNDS:
                rate = mean * noise.gauss(1, 0.01)
                metrics[f"seconds/{key}/{process}/{number}"] = length * batch / rate
            metrics[f"peak_bytes/{key}"] = 25e6 / gain
            metrics[f"mfu/{key}"] = None
    metrics |= rounds(changes)
    config = {
        "backends": ["blocked", "sdpa"], "processes": PROCESSES, "repeats": REPEATS, "warmup": 2,
        "threads": 1,
        "clock": "cpu", "device": "cpu",
        "shapes": {name: {"label": f"{length} tokens", "seq_len": length, "batch_size": batch}
                   for name, (length, batch) in SHAPES.items()},
        "trained_sizes": {
            "label": "64", "seq_len": TRAINED_SIZES[0], "batch_size": TRAINED_SIZES[1],
        },
    }  # fmt: skip
    model = {
        "d_model": 128, "num_layers": 2, "ffn_dim": 384, "vocab_size": 1024,
        "attention": {"head_dim": 32},
    }  # fmt: skip
    models = {row: dict.fromkeys(SHAPES, model) for row in rows}
    fake.write(
        fake.root / "timings" / "throughput.json", "throughput", "throughput", 0, None, metrics,
        {"config": config, "models": models},
    )  # fmt: skip


def _with_others(rows: Iterable[str], name: str, *, trained_sizes: bool = False) -> list[str]:
    """Rows and what else is timed, such as a row of an added table."""
    return list(dict.fromkeys((*rows, *timed_rows(name, trained_sizes=trained_sizes))))


def rounds(changes: Changes | None) -> dict[str, float | None]:
    return {
        f"seconds/{key}/{process}/{number}": None if middle is None else middle * factor
        for key, seconds in (changes or {}).items()
        for process, middle in enumerate(seconds)
        for number, factor in enumerate(DISTURBED)
    }


def decoding(fake: Any, changes: Changes | None = None, peak: float | None = 2e9) -> None:
    """Write the one result of the decoding job, ``changes`` as for `throughput`."""
    noise = random.Random("decoding")
    metrics: dict[str, float | None] = {"memory_bandwidth": peak}
    own = ("transformer_gqa", "transformer_double_heads", "diff_gqa", "diff_v2", "dex_s_gqa")
    rows = _with_others(own, "decoding")
    for row in rows:
        metrics[f"cache_bytes/{row}"] = 2048.0
        for batch in (1, 4):
            for context in (256, 1024):
                metrics[f"min_bytes_read/b{batch}_s{context}/{row}"] = 5e8 / batch
                key = f"seconds/b{batch}_s{context}/{row}"
                for process, number in ROUNDS:
                    mean = batch * 1000 * SPEED.get(row, 0.91) / context**0.2
                    speed = mean * noise.gauss(1, 0.01)
                    metrics[f"{key}/sdpa/decoding/{process}/{number}"] = batch * 8 / speed
                    metrics[f"{key}/eager/decoding/{process}/{number}"] = batch * 9 / speed
    metrics |= rounds(changes)
    config = {
        "batches": [1, 4], "contexts": [256, 1024], "new_tokens": 8, "backends": ["eager", "sdpa"],
        "device": "cpu", "clock": "cpu", "warmup": 1, "processes": PROCESSES, "repeats": REPEATS,
        "threads": 1,
    }  # fmt: skip
    model = {"d_model": 512, "num_layers": 4, "attention": {"head_dim": 64}}
    fake.write(
        fake.root / "timings" / "decoding.json", "decoding", "decoding", 0, None, metrics,
        {"config": config, "models": {row: {"model": model} for row in rows}},
    )  # fmt: skip
