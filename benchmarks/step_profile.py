"""Where the time of a training step on a CPU goes, part by part, beside the least it could take.

The least is what the part's multiply-adds take at the speed of a large product, or its bytes, each
read and written once, at the speed of a large copy, both measured here by the library that
multiplies (DIFFTRANSFORMER_MATMUL=torch or onednn forces one). The machine may be busy: a step
is the median of the process's own time, and its parts are the shares that torch's profiler finds
inside of whole steps. See benchmarks/README.md.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from training_step import OURS, RECORDS, SHAPES, Shape, Subject, ours, surroundings, ways

_NODE = "autograd::engine::evaluate_function: "
PARTS = {
    "projections": ("_Linear", "_LinearBackward", "aten::linear", f"{_NODE}MmBackward0"),
    "attention": ("_Blocked", "_BlockedBackward"),
    "rotary": ("_SplitHeads", "_SplitHeadsBackward"),
    "gate": ("_SwiGLU", "_SwiGLUBackward"),
    "norms": ("_RMSNorm", "_RMSNormBackward"),
    "cross-entropy": ("_ChunkedCrossEntropy", "_ChunkedCrossEntropyBackward"),
    "optimizer": ("aten::_fused_adamw_",),
}
"""What the profiler calls the pieces of a part; attention by SDPA is found under the rest."""
FLOAT = 4


def speeds() -> dict[str, float]:
    """FLOP/s of a product of 1024 x 1024 and bytes/s, read and written, of a copy of 64 MiB."""
    import torch

    from difftransformer.models.linear import linear_no_grad

    square, block = torch.randn(1024, 1024), torch.zeros(1 << 24)
    target = torch.empty_like(block)
    taken = [least(lambda: linear_no_grad(square, square)), least(lambda: target.copy_(block))]
    return {"flops": 2 * 1024**3 / taken[0], "bytes": 2 * FLOAT * block.numel() / taken[1]}


def least(work: Callable[[], object], repeats: int = 15) -> float:
    """Seconds of the thread in the quickest run."""
    seconds = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return min(seconds[1:])


def limits(subject: Subject, shape: Shape, speed: dict[str, float]) -> dict[str, float]:
    """Seconds that each part needs at least; backward of a product is two products."""
    from difftransformer.models.attention.base import Attention
    from difftransformer.models.linear import Linear
    from difftransformer.models.normalization import RMSNorm

    config, tokens = subject.model.config, shape.batch_size * shape.seq_len
    attention = config.attention
    parts = [*subject.model.modules()]
    pair = next(m for m in parts if isinstance(m, Attention)).macs_per_query_key()
    numbers = {kind: [m for m in parts if isinstance(m, kind)] for kind in (Linear, RMSNorm)}
    head = subject.model.output_weight.numel()
    weights = sum(m.weight.numel() for m in numbers[Linear]) - head
    heads = sum(m.weight.shape[0] for m in numbers[Linear] if "q_proj" in m.splits)
    of_heads = attention.output_heads * attention.value_dim  # where the gain is one head's
    width = sum(
        config.d_model if m.weight.numel() == config.d_model else of_heads for m in numbers[RMSNorm]
    )
    flops = {
        "projections": 6 * tokens * weights,
        "attention": 6 * tokens * config.num_layers * pair * (shape.seq_len + 1) / 2,
        "cross-entropy": 6 * tokens * head,
    }
    numbers_moved = {
        "rotary": 4 * tokens * heads,
        "gate": 8 * tokens * config.num_layers * config.ffn_dim,
        "norms": 5 * tokens * width,
        "optimizer": 7 * subject.parameters,
    }
    seconds = {name: count / speed["flops"] for name, count in flops.items()}
    return seconds | {name: FLOAT * n / speed["bytes"] for name, n in numbers_moved.items()}


def profiled(subject: Subject, tokens: Any, steps: int) -> dict[str, float]:
    """Share of a step in each part; the profiler's clock is that of the wall."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        for _ in range(steps):
            subject.step(tokens)
        total = time.perf_counter() - start
    named = {key: part for part, keys in PARTS.items() for key in keys}
    shares = dict.fromkeys(PARTS, 0.0)
    for event in profiler.events():
        part, parent = named.get(event.name), event.cpu_parent
        # A product of torch's own belongs to the part that it is called in.
        if part and not (parent is not None and event.name == "aten::linear"):
            shares[part] += event.cpu_time_total / 1e6 / total
    return shares


def profile_of(name: str, shape: Shape, steps: int) -> dict[str, Any]:
    """Profile one of our models at a shape."""
    import torch

    subject = ours(name, shape, ways("chosen")[0])
    size = (shape.batch_size, shape.seq_len + 1)
    tokens = torch.randint(shape.vocab_size, size, generator=torch.Generator().manual_seed(0))
    seconds = []
    for _ in range(steps + 2):
        start = time.thread_time()
        subject.step(tokens)
        seconds.append(time.thread_time() - start)
    step, speed = statistics.median(seconds[2:]), speeds()
    shares, least_of = profiled(subject, tokens, steps), limits(subject, shape, speed)
    parts = {part: share * step for part, share in shares.items()}
    parts["the rest"] = max(step - sum(parts.values()), 0.0)
    return {"step": step, "speed": speed, "parts": parts, "limits": least_of}


def markdown(name: str, result: dict[str, Any]) -> str:
    """Write a profile as a table."""
    speed, parts, least_of = result["speed"], result["parts"], result["limits"]
    lines = [
        f"{name}: {result['step'] * 1e3:.0f} ms a step; a large product {speed['flops'] / 1e9:.0f} "
        f"GFLOP/s, a large copy {speed['bytes'] / 1e9:.0f} GB/s",
        "",
        "| part | ms | share of the step | limit, ms | times the limit |",
        "|---|---:|---:|---:|---:|",
    ]
    for part, taken in parts.items():
        limit = least_of.get(part)
        beside = "" if limit is None else f"{limit * 1e3:.1f}"
        times = "" if not limit else f"{taken / limit:.1f}"
        share = f"{taken / result['step']:.0%}"
        lines.append(f"| {part} | {taken * 1e3:.1f} | {share} | {beside} | {times} |")
    total = sum(least_of.values())
    last_columns = f"{total * 1e3:.1f} | {result['step'] / total:.1f}"
    return "\n".join([*lines, f"| all | {result['step'] * 1e3:.1f} | 100% | {last_columns} |"])


def main() -> None:
    """Parse the command line, profile, print, and record when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--shape", choices=SHAPES, nargs="+", default=["medium", "small"])
    parser.add_argument("--model", choices=OURS, nargs="+", default=["transformer", "diff_v1"])
    parser.add_argument("--steps", type=int, default=5, help="profiled steps (default 5)")
    parser.add_argument("--record", action="store_true", help="write JSON to benchmarks/records/")
    arguments = parser.parse_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    import torch

    torch.set_num_threads(1)
    from difftransformer.models.linear import matmul_backend
    from difftransformer.training.process import keep_freed_memory

    keep_freed_memory()  # as a training does
    report: dict[str, Any] = {**surroundings(1), "results": {}}
    for shape in arguments.shape:
        for model in arguments.model:
            result = profile_of(model, SHAPES[shape], arguments.steps)
            report["results"][f"{shape}/{model}"] = result
            print(f"\n{markdown(f'{shape}, {model}', result)}", flush=True)
    report["matmul_backend"] = matmul_backend()
    if arguments.record:
        RECORDS.mkdir(exist_ok=True)
        day, way = datetime.now(UTC).date(), report["matmul_backend"]
        path = Path(RECORDS, f"step_profile-{way}-{day}.json")
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(f"recorded in {path}")


if __name__ == "__main__":
    main()
