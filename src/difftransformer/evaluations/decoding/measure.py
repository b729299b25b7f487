"""Decoded tokens of every row at every batch size and context length, and what its cache takes.

Shapes: B = batch, S = positions in the cache.
"""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from difftransformer.config.evaluations import BenchmarkConfig
from difftransformer.convert.attention_hooks import attention_layers
from difftransformer.evaluation.timing import CLOCKS, Clock, Metrics, time_interleaved, time_shape
from difftransformer.evaluations.decoding.settings import MODE, MODEL, Load, Timing
from difftransformer.machine.gpus import memory_bandwidth
from difftransformer.machine.memory import require_room
from difftransformer.models.cache import PrefixCache
from difftransformer.models.linear import linear
from difftransformer.models.sizes import count_parameters, kv_cache_numel_per_token
from difftransformer.models.transformer import Transformer

_READ = 256
"""Positions of a long context that a model reads itself."""


def measure(slice: BenchmarkConfig, device: torch.device, process: int) -> Metrics:
    """Time every row at every batch size and context length, in the order of turns of a process.

    Returns:
        Those of `time_shape`; cache_bytes/{row}: what the cache grows by for each position of one
        sequence; min_bytes_read/{shape}/{row}: what must be read for each token, the weights once
        for all sequences and each sequence's cache; memory_bandwidth: bytes per second that the
        device's memory gives, None where it is not known.

    The speed of a GPU's memory is that of its data sheet, of a CPU's how fast it reads a large
    matrix in this job.

    Raises:
        UserError: Models and caches are more than the memory that is free.
    """
    config = slice.config
    assert isinstance(config, Timing), slice.evaluation
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    rows = {row: one[MODEL] for row, one in slice.models.items()}
    held = {row: dtype.itemsize * kv_cache_numel_per_token(one) for row, one in rows.items()}
    weights = {row: dtype.itemsize * count_parameters(one) for row, one in rows.items()}
    _require_memory(config, sum(weights.values()), sum(held.values()), device)
    models = {
        row: Transformer.build(one, "sdpa", 0).to(device, dtype).eval() for row, one in rows.items()
    }
    metrics: Metrics = {"memory_bandwidth": memory_speed(config, device)}
    metrics |= {f"cache_bytes/{row}": float(one) for row, one in held.items()}
    for shape, load in config.calls().items():
        metrics |= _measure(models, config, shape, load, device, process)
        positions = load.context + (load.seq_len + 1) / 2  # on average, its own among them
        for row, one in rows.items():
            unread = 0 if one.tie_embeddings else dtype.itemsize * one.vocab_size * one.d_model
            least = (weights[row] - unread) / load.batch_size + held[row] * positions
            metrics[f"min_bytes_read/{shape}/{row}"] = least
    return metrics


def memory_speed(config: Timing, device: torch.device) -> float | None:
    """Bytes per second of a GPU, None where its name is not known, or that a CPU reads."""
    if device.type == "cuda":
        return memory_bandwidth(torch.cuda.get_device_name(device))
    return reading_speed(CLOCKS[config.clock])


@torch.inference_mode()
def reading_speed(clock: Clock, rows: int = 1 << 14) -> float:
    """Bytes a second of the quickest of some products of a matrix of 4096 columns and a vector.

    Of 256 MiB, which few processors have for a cache.
    """
    matrix, vector = torch.ones(rows, 1 << 12), torch.ones(1 << 12)
    taken = time_interleaved({"read": lambda: matrix @ vector}, warmup=1, repeats=5, clock=clock)
    return float(matrix.nbytes / min(taken["read"]))


def _require_memory(config: Timing, weights: int, held: int, device: torch.device) -> None:
    """Refuse what cannot fit before anything is timed: the largest caches of all rows at a time."""
    batch, context = max(config.batches), max(config.contexts)
    caches = held * batch * (context + config.new_tokens)
    require_room(
        weights + caches,
        device,
        "decoding: timing all rows",
        f"lower timings.decoding.batches ({batch}) or timings.decoding.contexts ({context})",
    )


@torch.inference_mode()
def _measure(
    models: dict[str, Transformer],
    config: Timing,
    shape: str,
    load: Load,
    device: torch.device,
    process: int,
) -> Metrics:
    """Time all rows at one batch size and context length; their caches exist together."""
    caches = {row: filled_cache(one, load) for row, one in models.items()}
    steps = {
        f"{shape}/{row}/{backend}/{MODE}": turn(model, backend, caches[row], load)
        for (row, model), backend in product(models.items(), config.backends)
    }
    return time_shape(steps, load, config, device, process)


@torch.inference_mode()
def filled_cache(model: Transformer, load: Load) -> PrefixCache:
    """Return a cache as of the context in random tokens, with room for what is written.

    The model reads the first of them; their keys and values are repeated up to the context.
    """
    generator = torch.Generator().manual_seed(0)
    size = (load.batch_size, min(load.context, _READ))
    tokens = torch.randint(model.config.vocab_size, size, generator=generator)
    cache = PrefixCache(load.context + load.seq_len)
    model.hidden_states(tokens.to(model.embedding.weight.device), cache=cache)
    while left := load.context - cache.get_seq_length():
        for layer in range(len(model.layers)):
            keys, values = (held[:, :, :left] for held in cache.get(layer))
            cache.update(keys, values, layer)
    return cache


def turn(model: Transformer, backend: str, cache: PrefixCache, load: Load) -> Callable[[], Tensor]:
    """Return what writes new tokens greedily behind the context, again at each call."""
    layers, device = attention_layers(model), model.embedding.weight.device
    start = torch.zeros(load.batch_size, 1, dtype=torch.long, device=device)

    @torch.inference_mode()
    def run() -> Tensor:
        for layer in layers:
            layer.backend = backend
        cache.truncate(load.context)
        token, written = start, []
        for _ in range(load.seq_len):
            hidden = model.hidden_states(token, cache=cache)
            token = linear(hidden, model.output_weight).argmax(-1)
            written.append(token)
        return torch.cat(written, dim=1)

    return run
