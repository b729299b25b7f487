"""Throughput and memory of training and forward passes (DIFF paper, table 7).

Every row, backend and mode of a shape has one turn in each round, so that a machine with other
work to do disturbs all alike; ratios are taken within a round. Models hold random weights and read
random tokens: neither changes the time.

Shapes: B = batch_size, T = seq_len.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from difftransformer.analysis.timing import CLOCKS, peak_memory, spread, take_turns
from difftransformer.analysis.timing_result import prepare, timing_fingerprint, write_timings
from difftransformer.config.model import ModelConfig
from difftransformer.config.throughput import BatchConfig, ThroughputConfig, ThroughputSlice
from difftransformer.models.attention.base import Attention
from difftransformer.models.device import autocast
from difftransformer.models.flops import forward_flops, training_flops
from difftransformer.models.loss import chunked_cross_entropy
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.result import Number
from difftransformer.provenance.tracking import Tracker
from difftransformer.training.device import keep_freed_memory

logger = logging.getLogger(__name__)

KIND = "throughput"
Mode = Literal["training", "forward"]
MODES: tuple[Mode, ...] = ("training", "forward")


class Turn(NamedTuple):
    """One thing that is timed."""

    row: str
    backend: str
    mode: Mode


def measure_throughput(
    slice: ThroughputSlice, *, output: Path, threads: int, tracker: Tracker, code: str
) -> None:
    """Time every row at every shape and write one result file.

    Metrics are named {what}/{shape}/{row}/{backend}/{mode}: seconds, followed by /{round}, of each
    timed round; tokens_per_second, median over rounds; peak_bytes that one call allocates beside
    the weights; flops_per_token by formula; peak_share, of the device's FLOP/s, where those are
    known.

    Args:
        slice: Shapes, backends and models.
        output: JSON file of the result.
        threads: Cores of the job, threads of one operation unless the settings say otherwise.
        tracker: Receives the medians and the result file.
        code: Fingerprint of the code that is timed.

    Raises:
        BackendError: A backend or device that was asked for cannot be used here.
    """
    started = datetime.now(UTC)
    config = slice.config
    threads = config.threads or threads
    device = prepare(config, threads, "throughput.device")
    if device.type == "cpu":
        keep_freed_memory()
    peak = device_peak(config, device)
    metrics: dict[str, Number] = {}
    for name, shape in config.timed().items():
        models = {row: one[name] for row, one in slice.models.items() if name in one}
        metrics |= _measure(name, shape, models, config, device, peak)
    write_timings(
        KIND,
        slice,
        metrics,
        {"device": str(device), "threads": threads, "peak_flops": peak},
        identity=timing_fingerprint("measure_throughput", slice, code),
        started=started,
        output=output,
        tracker=tracker,
    )


def device_peak(config: ThroughputConfig, device: torch.device) -> float | None:
    """FLOP/s that the settings give for this device; None for the CPU or an unknown name."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in config.peak_flops.items() if part in name), None)


def _measure(
    name: str,
    shape: BatchConfig,
    configs: dict[str, ModelConfig],
    config: ThroughputConfig,
    device: torch.device,
    peak: float | None,
) -> dict[str, Number]:
    """Time all rows at one shape; their models exist together, and no longer than this."""
    size = (shape.batch_size, shape.seq_len + 1)
    vocab_size = min(one.vocab_size for one in configs.values())
    tokens = torch.randint(vocab_size, size, generator=torch.Generator().manual_seed(0)).to(device)
    models = {row: Transformer.build(one, "eager", 0).to(device) for row, one in configs.items()}
    steps = {
        Turn(row, backend, mode): step(model, backend, mode, tokens, config)
        for row, model in models.items()
        for backend in config.backends
        for mode in MODES
    }
    seconds = take_turns(
        steps,
        warmup=config.warmup,
        repeats=config.repeats,
        clock=CLOCKS[config.clock],
        device=device,
    )
    metrics: dict[str, Number] = {}
    for turn, taken in seconds.items():
        place = f"{name}/{turn.row}/{turn.backend}/{turn.mode}"
        metrics |= {f"seconds/{place}/{number}": one for number, one in enumerate(taken)}
        speed = spread([shape.batch_size * shape.seq_len / one for one in taken]).median
        count = training_flops if turn.mode == "training" else forward_flops
        flops = count(configs[turn.row], shape.seq_len)
        metrics[f"tokens_per_second/{place}"] = speed
        metrics[f"flops_per_token/{place}"] = flops
        models[turn.row].zero_grad(set_to_none=True)
        metrics[f"peak_bytes/{place}"] = peak_memory(steps[turn], device)
        metrics[f"peak_share/{place}"] = None if peak is None else speed * flops / peak
        logger.info("%s: %.4g tokens/s", place, speed)
    return metrics


def step(
    model: Transformer, backend: str, mode: Mode, tokens: Tensor, config: ThroughputConfig
) -> Callable[[], None]:
    """Return one call of a model on tokens [B, T + 1] with one of its backends."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    targets = tokens[:, 1:].flatten()

    def run() -> None:
        for layer in layers:
            layer.backend = backend
        model.zero_grad(set_to_none=True)
        with (
            torch.set_grad_enabled(mode == "training"),
            autocast(tokens.device, config.precision),
        ):
            hidden = model.hidden_states(tokens[:, :-1]).flatten(0, 1)
            loss = chunked_cross_entropy(hidden, model.output_weight, targets, config.loss_chunk)
        if mode == "training":
            loss.backward()  # type: ignore[no-untyped-call]

    return run
