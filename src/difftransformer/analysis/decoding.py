"""Speed of decoding with a KV cache, and the bytes of the cache (DIFF V2 post).

At each batch size and context length every row and backend has one turn in each round, so that a
machine with other work to do disturbs all alike; ratios are taken within a round. Models hold
random weights and read random tokens: neither changes the time.

Shapes: B = batch, S = positions in the cache.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from difftransformer.analysis.timing import CLOCKS, spread, take_turns
from difftransformer.analysis.timing_result import prepare, timing_fingerprint, write_timings
from difftransformer.config.decoding import DecodingSlice
from difftransformer.models.attention.base import Attention
from difftransformer.models.cache import PrefixCache
from difftransformer.models.footprint import cached_numbers
from difftransformer.models.products import linear
from difftransformer.models.transformer import Transformer, count_parameters
from difftransformer.provenance.result import Number
from difftransformer.provenance.tracking import Tracker
from difftransformer.training.memory import GIB, require_room

logger = logging.getLogger(__name__)

KIND = "decoding"
_READ = 256
"""Positions of a long context that a model reads itself."""


def measure_decoding(
    slice: DecodingSlice, *, output: Path, threads: int, tracker: Tracker, code: str
) -> None:
    """Time every row at every batch size and context length and write one result file.

    Metrics are named {what}/b{batch}/s{context}/{row}/{backend}: seconds, followed by /{round}, of
    each timed round; tokens_per_second, median over rounds. cache_bytes/{row}: what the tensors of
    the cache grow by for each position of one sequence.

    Args:
        slice: What is timed, and the models.
        output: JSON file of the result.
        threads: Cores of the job, threads of one operation unless the settings say otherwise.
        tracker: Receives the medians and the result file.
        code: Fingerprint of the code that is timed.

    Raises:
        BackendError: A backend or device that was asked for cannot be used here.
        UserError: Models and caches are more than the memory that is free.
    """
    started = datetime.now(UTC)
    config = slice.config
    threads = config.threads or threads
    device = prepare(config, threads, "decoding.device")
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    _require_memory(slice, dtype, device)
    models = {
        row: Transformer.build(one, "sdpa", 0).to(device, dtype).eval()
        for row, one in slice.models.items()
    }
    metrics: dict[str, Number] = {}
    for batch, context in product(config.batches, config.contexts):
        metrics |= _measure(models, slice, batch, context, device)
    write_timings(
        KIND,
        slice,
        metrics,
        {"device": str(device), "threads": threads},
        identity=timing_fingerprint("measure_decoding", slice, code),
        started=started,
        output=output,
        tracker=tracker,
    )


def _require_memory(slice: DecodingSlice, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse what cannot fit before anything is timed: the largest caches of all rows at a time."""
    config, models = slice.config, slice.models.values()
    positions = max(config.batches) * (max(config.contexts) + config.new_tokens)
    weights = dtype.itemsize * sum(map(count_parameters, models))
    caches = dtype.itemsize * sum(map(cached_numbers, models)) * positions
    require_room(
        weights + caches,
        device,
        f"{KIND}: timing {len(slice.models)} models",
        f"weights {weights / GIB:.2f}, caches {caches / GIB:.2f}",
        f"lower {KIND}.batches ({max(config.batches)}) or {KIND}.contexts ({max(config.contexts)})",
    )


@torch.inference_mode()
def _measure(
    models: dict[str, Transformer], slice: DecodingSlice, batch: int, context: int,
    device: torch.device,
) -> dict[str, Number]:  # fmt: skip
    """Time all rows at one batch size and context length; their caches exist together."""
    config = slice.config
    caches = {
        row: filled_cache(one, batch, context, config.new_tokens) for row, one in models.items()
    }
    steps = {
        (row, backend): turn(model, backend, caches[row], batch, context, config.new_tokens)
        for row, model in models.items()
        for backend in config.backends
    }
    seconds = take_turns(
        steps,
        warmup=config.warmup,
        repeats=config.repeats,
        clock=CLOCKS[config.clock],
        device=device,
    )
    metrics: dict[str, Number] = {
        f"cache_bytes/{row}": cache_bytes(caches[row], len(model.layers))
        for row, model in models.items()
    }
    for (row, backend), taken in seconds.items():
        place = f"b{batch}/s{context}/{row}/{backend}"
        metrics |= {f"seconds/{place}/{number}": one for number, one in enumerate(taken)}
        speed = spread([batch * config.new_tokens / one for one in taken]).median
        metrics[f"tokens_per_second/{place}"] = speed
        logger.info("%s: %.4g tokens/s", place, speed)
    return metrics


@torch.inference_mode()
def filled_cache(model: Transformer, batch: int, context: int, room: int) -> PrefixCache:
    """Return a cache as of ``context`` random tokens in B sequences.

    The model reads the first of them; their keys and values are repeated up to the context.
    """
    generator = torch.Generator().manual_seed(0)
    size = (batch, min(context, _READ))
    tokens = torch.randint(model.config.vocab_size, size, generator=generator)
    cache = PrefixCache(context + room)
    model.hidden_states(tokens.to(model.embedding.weight.device), cache=cache)
    while left := context - cache.get_seq_length():
        for layer in range(len(model.layers)):
            keys, values = (held[:, :, :left] for held in cache.held(layer))
            cache.update(keys, values, layer)
    return cache


def turn(
    model: Transformer, backend: str, cache: PrefixCache, batch: int, context: int, new_tokens: int
) -> Callable[[], Tensor]:
    """Return what writes ``new_tokens`` greedily behind the context, again at each call."""
    layers = [module for module in model.modules() if isinstance(module, Attention)]
    start = torch.zeros(batch, 1, dtype=torch.long, device=model.embedding.weight.device)

    @torch.inference_mode()
    def run() -> Tensor:
        for layer in layers:
            layer.backend = backend
        cache.keep(context)
        token, written = start, []
        for _ in range(new_tokens):
            hidden = model.hidden_states(token, cache=cache)
            token = linear(hidden, model.output_weight).argmax(-1)
            written.append(token)
        return torch.cat(written, dim=1)

    return run


def cache_bytes(cache: PrefixCache, layers: int) -> float:
    """Bytes of the tensors that are held, over all layers, for each position of a sequence."""
    held = [tensor for layer in range(layers) for tensor in cache.held(layer)]
    positions = held[0].shape[0] * cache.get_seq_length()
    return sum(tensor.numel() * tensor.element_size() for tensor in held) / positions
