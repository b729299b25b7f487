"""Where does the time of a training step of 135M parameters go? By kind of kernel, by the profiler.

Beside it how much of the step the card computes at all, the speed of products and of attention in
operations of the model, no matter how many a kernel takes, and the kernels that take longest:
whatever keeps the step from its share of the peak is one of them, or is between them. The steps are
those of `step.py`; the trainer has several of them to one of the optimizer.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from models import build, config, tokens, training_step
from runs import Answer, Questions, Setting, main
from step import TOKENS, each

WARMUP, STEPS, LONGEST = 3, 3, 15
KINDS = {
    "compiled": r"^triton_(?!tem)",
    "attention": r"sdpa|flash|fmha|flex|cudnn::fusion|^(forward|queries|keys|row_statistics)$",
    "products": r"gemm|gemv|nvjet|cutlass|xmma|cublas|^triton_tem|::mm$|addmm|bmm",
    "optimizer": r"adam|multi_tensor|foreach|lpnorm",
    "copies": r"memcpy|memset|copy",
}
"""Kernels by their names, the first that fits; all others are `other`."""


class Kernel(NamedTuple):
    """One that has run; microseconds."""

    name: str
    start: float
    end: float


def questions(setting: Setting) -> Questions:
    """One for each length, row and backend."""
    return each(setting, measure)


def ahead(setting: Setting) -> Questions:
    """Nothing that `step` does not compile."""
    return {}


def measure(setting: Setting, row: str, backend: str, T: int) -> Answer:
    """Look at some steps in a row."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from difftransformer.models.sizes import training_flops

    model, batch = build(setting, row, backend, T), tokens(setting, T, TOKENS)
    step = training_step(setting, model, batch, compiled=not setting.tiny)
    for _ in range(WARMUP):
        step()
    cuda = setting.device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as found:
        for _ in range(STEPS):
            step()
        if cuda:
            torch.cuda.synchronize()
    kernels = list(those_of(found, setting))
    if not kernels:
        raise RuntimeError("the profiler saw no kernel of the card")
    whole = max(one.end for one in kernels) - min(one.start for one in kernels)
    by_name: dict[str, list[float]] = defaultdict(list)
    by_kind: dict[str, float] = defaultdict(float)
    for name, start, end in kernels:
        by_name[name].append(end - start)
        by_kind[kind_of(name)] += (end - start) / 1e6 / STEPS
    # Of a token, without the pairs of queries and keys: these grow with its place.
    flops = partial(training_flops, config(setting, row, T), causal=True)
    multiplied = 2 * flops(1) - flops(3)
    operations = {"products": multiplied, "attention": flops(T) - multiplied}
    longest = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:LONGEST]
    return {
        "seconds": whole / 1e6 / STEPS,
        "busy": sum(by_kind.values()) / (whole / 1e6 / STEPS),
        "by_kind": by_kind,
        "model_tflops": {
            kind: one * batch[:, 1:].numel() / by_kind[kind] / 1e12
            for kind, one in operations.items()
            if by_kind.get(kind)
        },
        "longest": [
            [name[:80], sum(each) / 1e6 / STEPS, len(each) / STEPS] for name, each in longest
        ],
    }


def those_of(found: Any, setting: Setting) -> Iterator[Kernel]:
    """Kernels of a profile; on a CPU operations, which lie in each other."""
    wanted = "CUDA" if setting.device == "cuda" else "CPU"
    for one in found.events():
        if one.device_type.name == wanted and not getattr(one, "is_user_annotation", False):
            yield Kernel(one.name, one.time_range.start, one.time_range.end)


def kind_of(name: str) -> str:
    """Which of `KINDS` a kernel is."""
    fits = (kind for kind, names in KINDS.items() if re.search(names, name, re.IGNORECASE))
    return next(fits, "other")


if __name__ == "__main__":
    main("parts", __doc__, questions)
