"""Time training and forward passes of every row (model), shape and backend.

Shapes: B = batch_size, T = seq_len.
"""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from difftransformer.config.evaluations import BenchmarkConfig
from difftransformer.config.timing import BatchConfig
from difftransformer.convert.attention_hooks import attention_layers
from difftransformer.evaluation.timing import (
    CLOCKS,
    Clock,
    Metrics,
    peak_memory,
    time_interleaved,
    time_shape,
)
from difftransformer.evaluations.throughput.settings import Timing
from difftransformer.machine.gpus import bf16_peak
from difftransformer.models.config import ModelConfig
from difftransformer.models.device import autocast
from difftransformer.models.linear import linear_no_grad as matmul
from difftransformer.models.loss import chunked_cross_entropy
from difftransformer.models.sizes import forward_flops, training_flops
from difftransformer.models.transformer import Transformer
from difftransformer.training.compiled import compiled_states
from difftransformer.training.process import keep_freed_memory

FLOPS = {"training": training_flops, "forward": forward_flops}
"""Timed mode -> function for its FLOPs per token by formula."""


def measure(benchmark: BenchmarkConfig, device: torch.device, process: int) -> Metrics:
    """Return speed, memory and utilization of every row (model) and shape, measured in one process.

    Returns:
        {metric}/{shape}/{row}/{backend}/{mode} for the metrics of `time_shape` and three more:
        peak_bytes that a call allocates besides the weights, from the first process only, as it is
        the same in all; flops_per_token by formula, with a causal mask; mfu (model FLOPs
        utilization), the achieved over the peak FLOP/s, None if the peak is unknown. Also
        peak_flops, the device's peak FLOP/s, or None.
    """
    config = benchmark.config
    assert isinstance(config, Timing), benchmark.evaluation
    if device.type == "cpu":
        keep_freed_memory()
    peak = peak_flops_of(config, device)
    metrics: Metrics = {"peak_flops": peak}
    for shape, call in config.calls().items():
        rows = {row: shapes[shape] for row, shapes in benchmark.models.items() if shape in shapes}
        metrics |= _time_rows(shape, call, rows, config, device, peak, process)
    return metrics


def peak_flops_of(config: Timing, device: torch.device) -> float | None:
    """Return a device's peak FLOP/s: of a GPU in bf16 from its data sheet, of a CPU as measured."""
    if device.type == "cpu":
        dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
        return matmul_flops_per_second(dtype, CLOCKS[config.clock])
    return bf16_peak(torch.cuda.get_device_name(device)) if config.precision == "bf16" else None


def matmul_flops_per_second(dtype: torch.dtype, clock: Clock) -> float:
    """Return the CPU's FLOP/s in the fastest of nine 1024 x 1024 matrix multiplications."""
    square = torch.randn(1024, 1024, generator=torch.Generator().manual_seed(0)).to(dtype)
    work = {"product": lambda: matmul(square, square)}
    seconds = time_interleaved(work, warmup=2, repeats=9, clock=clock)
    return float(2 * 1024**3 / min(seconds["product"]))


def _time_rows(
    shape: str,
    call: BatchConfig,
    rows: dict[str, ModelConfig],
    config: Timing,
    device: torch.device,
    peak: float | None,
    process: int,
) -> Metrics:
    """Time all rows at a shape, with all their models in memory."""
    size = (call.batch_size, call.seq_len + 1)
    vocab_size = min(m.vocab_size for m in rows.values())
    tokens = torch.randint(vocab_size, size, generator=torch.Generator().manual_seed(0)).to(device)
    models = {row: Transformer.build(m, "eager", 0).to(device) for row, m in rows.items()}
    if config.compile:
        torch.compiler.reset()  # the graphs of the shape before
        for model in models.values():
            compiled_states(model)  # in place, as in training
    steps = {
        f"{shape}/{row}/{backend}/{mode}": make_step(model, backend, mode, tokens, config)
        for (row, model), backend, mode in product(models.items(), config.backends, FLOPS)
    }
    metrics = time_shape(steps, call, config, device, process)
    for key, run in steps.items():
        _, row, _, mode = key.split("/")
        if (speed := metrics[f"tokens_per_second/{key}"]) is None:
            continue
        flops = FLOPS[mode](rows[row], call.seq_len, causal=True)
        metrics[f"flops_per_token/{key}"] = flops
        metrics[f"mfu/{key}"] = None if peak is None else speed * flops / peak
        if process == 0:
            models[row].zero_grad(set_to_none=True)
            metrics[f"peak_bytes/{key}"] = peak_memory(run, device)
    return metrics


def make_step(
    model: Transformer, backend: str, mode: str, tokens: Tensor, config: Timing
) -> Callable[[], None]:
    """Return a function that runs one training or forward pass of a model with one backend.

    ``mode`` is "training" or "forward"; the pass reads ``tokens``, [B, T + 1].
    """
    layers = attention_layers(model)
    targets = tokens[:, 1:].flatten()
    on_gpu = config.compile and tokens.is_cuda

    def run() -> None:
        for layer in layers:
            layer.backend = backend
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(mode == "training"), autocast(tokens.device, config.precision):
            hidden = model.hidden_states(tokens[:, :-1]).flatten(0, 1)
            loss = chunked_cross_entropy(
                hidden, model.output_weight, targets, config.loss_chunk, compiled=on_gpu
            )
        if mode == "training":
            loss.backward()  # type: ignore[no-untyped-call]

    return run
