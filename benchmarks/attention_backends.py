"""Which attention backend is the faster one on a CPU, call by call: `blocked` or `sdpa`.

Each operation of `models.kernels.Kernel` runs forward and backward on the same queries, keys and
values under both backends, which take turns. models/kernels/cpu_dispatch.py, which `backend: auto`
takes on a CPU, follows the table that this prints: see benchmarks/README.md.
"""

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
OPERATIONS = ("attention", "attention_with_lse", "differential_attention")
POSITIONS = (64, 128, 192, 256, 384, 512, 1024, 2048)
HEAD_DIMS = (16, 32, 64)
SHARINGS = {"mha": (4, 4), "gqa": (8, 4)}
"""Output heads and key/value heads; gqa is DIFF V2's call, twice the queries over as many keys."""
TOKENS = 2048
"""Positions of a batch, whatever the length of its sequences; at least two sequences."""


def step(operation: str, backend: str, T: int, d: int, sharing: str) -> Callable[[], object]:
    """Forward and backward of one call on random inputs."""
    import torch

    from difftransformer.models.kernels import get_kernel

    H, G = SHARINGS[sharing]
    maps = 2 if operation == "differential_attention" else 1
    B, generator = max(2, TOKENS // T), torch.Generator().manual_seed(0)
    sizes = ((maps * H, d), (maps * G, d), (G, maps * d))
    inputs = [
        torch.randn(B, heads, T, width, generator=generator).requires_grad_()
        for heads, width in sizes
    ]
    if maps == 2:
        inputs.append(torch.tensor(0.3, requires_grad=True))
    call = partial(getattr(get_kernel(backend), operation), scale=d**-0.5, mask=None)

    def run() -> None:
        out = call(*inputs)
        outs = [out] if isinstance(out, torch.Tensor) else list(out)
        torch.autograd.grad([tensor.sum() for tensor in outs], inputs)

    return run


def measure(repeats: int, clock: str) -> list[dict[str, Any]]:
    """Time of sdpa over that of blocked, round by round, for each call."""
    from training_step import spread

    from difftransformer.evaluation.timing import CLOCKS, time_interleaved

    rows = []
    for operation, T, d, sharing in product(OPERATIONS, POSITIONS, HEAD_DIMS, SHARINGS):
        steps = {name: step(operation, name, T, d, sharing) for name in ("blocked", "sdpa")}
        seconds = time_interleaved(steps, warmup=2, repeats=repeats, clock=CLOCKS[clock])
        ratios = [b / a for a, b in zip(seconds["blocked"], seconds["sdpa"], strict=True)]
        ratio = spread(ratios)
        rows.append(
            {"operation": operation, "T": T, "d": d, "sharing": sharing, "sdpa_over_blocked": ratio}
        )
        print(operation, T, d, sharing, f"{ratio['median']:.2f}", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Geometric mean over the shapes, by operation and positions; above 1 `blocked` is faster."""
    from statistics import geometric_mean

    return {
        operation: {
            T: geometric_mean(
                row["sdpa_over_blocked"]["median"]
                for row in rows
                if (row["operation"], row["T"]) == (operation, T)
            )
            for T in POSITIONS
        }
        for operation in OPERATIONS
    }


def main() -> None:
    """Measure, print the table, and record when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    parser.add_argument("--repeats", type=int, default=9, help="timed rounds of each call")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--record", action="store_true", help="write JSON to benchmarks/records/")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    import torch
    from training_step import surroundings

    torch.set_num_threads(arguments.threads)
    rows = measure(arguments.repeats, arguments.clock)
    means = table(rows)
    print("\n| time of sdpa over blocked | " + " | ".join(map(str, POSITIONS)) + " |")
    print("|---|" + "---:|" * len(POSITIONS))
    for operation, by_positions in means.items():
        print(f"| {operation} | " + " | ".join(f"{x:.2f}" for x in by_positions.values()) + " |")
    if arguments.record:
        report = surroundings(arguments.threads) | vars(arguments) | {"rows": rows, "means": means}
        path = RECORDS / f"attention_backends-{report['date'][:10]}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
