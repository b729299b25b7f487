"""Time greedy decoding of every row by batch size and context length, and size its KV cache.

Shapes: B = batch, S = positions in the cache.
"""

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor

from difftransformer.config.evaluations import BenchmarkConfig
from difftransformer.convert.attention_hooks import attention_layers
from difftransformer.evaluation.timing import CLOCKS, Clock, Metrics, time_interleaved, time_shape
from difftransformer.evaluations.decoding.settings import MODE, MODEL, DecodingShape, Timing
from difftransformer.machine.gpus import memory_bandwidth
from difftransformer.machine.memory import require_room
from difftransformer.models.cache import PrefixCache
from difftransformer.models.linear import linear
from difftransformer.models.sizes import count_parameters, kv_cache_numel_per_token
from difftransformer.models.transformer import Transformer

_PREFILL = 256
"""Positions of a context that a model computes; longer contexts repeat their keys and values."""


def measure(benchmark: BenchmarkConfig, device: torch.device, process: int) -> Metrics:
    """Return decoding speeds and KV cache sizes of every row (model), measured in one process.

    Returns:
        The metrics of `time_shape` for every shape (a batch size and context length), and:
        cache_bytes/{row}: KV cache bytes per position of a sequence; min_bytes_read/{shape}/{row}:
        bytes that must be read per token (the weights once for all sequences, and the sequence's
        cache); memory_bandwidth: the device's, in bytes per second, or None.

    Raises:
        UserError: Models and caches need more than the free memory.
    """
    config = benchmark.config
    assert isinstance(config, Timing), benchmark.evaluation
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    rows = {row: shapes[MODEL] for row, shapes in benchmark.models.items()}
    cache_bytes = {row: dtype.itemsize * kv_cache_numel_per_token(m) for row, m in rows.items()}
    weights = {row: dtype.itemsize * count_parameters(m) for row, m in rows.items()}
    _require_memory(config, sum(weights.values()), sum(cache_bytes.values()), device)
    models = {
        row: Transformer.build(m, "sdpa", 0).to(device, dtype).eval() for row, m in rows.items()
    }
    metrics: Metrics = {"memory_bandwidth": memory_bandwidth_of(config, device)}
    metrics |= {f"cache_bytes/{row}": float(size) for row, size in cache_bytes.items()}
    for name, shape in config.calls().items():
        metrics |= _time_rows(models, config, name, shape, device, process)
        # The mean over the new tokens of the positions up to and including each.
        positions = shape.context + (shape.seq_len + 1) / 2
        for row, m in rows.items():
            unread = 0 if m.tie_embeddings else dtype.itemsize * m.vocab_size * m.d_model
            least = (weights[row] - unread) / shape.batch_size + cache_bytes[row] * positions
            metrics[f"min_bytes_read/{name}/{row}"] = least
    return metrics


def memory_bandwidth_of(config: Timing, device: torch.device) -> float | None:
    """Return a device's memory bandwidth in bytes per second, or None if it is unknown."""
    if device.type == "cuda":
        return memory_bandwidth(torch.cuda.get_device_name(device))
    return cpu_read_bandwidth(CLOCKS[config.clock])


@torch.inference_mode()
def cpu_read_bandwidth(clock: Clock, rows: int = 1 << 14) -> float:
    """Return the CPU's read bandwidth in bytes per second, measured over a large matrix.

    The fastest of five matrix-vector products counts. The matrix has ``rows`` rows of 4096 columns,
    256 MiB by default, which is larger than the cache of most processors.
    """
    matrix, vector = torch.ones(rows, 1 << 12), torch.ones(1 << 12)
    taken = time_interleaved({"read": lambda: matrix @ vector}, warmup=1, repeats=5, clock=clock)
    return float(matrix.nbytes / min(taken["read"]))


def _require_memory(config: Timing, weights: int, cache_bytes: int, device: torch.device) -> None:
    """Require memory for the largest caches of all rows before anything is timed."""
    batch, context = max(config.batches), max(config.contexts)
    caches = cache_bytes * batch * (context + config.new_tokens)
    require_room(
        weights + caches,
        device,
        "decoding: timing all rows",
        f"lower timings.decoding.batches ({batch}) or timings.decoding.contexts ({context})",
    )


@torch.inference_mode()
def _time_rows(
    models: dict[str, Transformer],
    config: Timing,
    name: str,
    shape: DecodingShape,
    device: torch.device,
    process: int,
) -> Metrics:
    """Time all rows at a batch size and context length, with all caches in memory."""
    caches = {row: filled_cache(model, shape) for row, model in models.items()}
    steps = {
        f"{name}/{row}/{backend}/{MODE}": make_decode(model, backend, caches[row], shape)
        for (row, model), backend in product(models.items(), config.backends)
    }
    return time_shape(steps, shape, config, device, process)


@torch.inference_mode()
def filled_cache(model: Transformer, shape: DecodingShape) -> PrefixCache:
    """Return a KV cache filled with a context of random tokens, with room for the new tokens.

    The model computes `_PREFILL` positions; their keys and values are repeated up to the context.
    """
    generator = torch.Generator().manual_seed(0)
    size = (shape.batch_size, min(shape.context, _PREFILL))
    tokens = torch.randint(model.config.vocab_size, size, generator=generator)
    cache = PrefixCache(shape.context + shape.seq_len)
    model.hidden_states(tokens.to(model.embedding.weight.device), cache=cache)
    while missing := shape.context - cache.get_seq_length():
        for layer in range(len(model.layers)):
            keys, values = (tensor[:, :, :missing] for tensor in cache.get(layer))
            cache.update(keys, values, layer)
    return cache


def make_decode(
    model: Transformer, backend: str, cache: PrefixCache, shape: DecodingShape
) -> Callable[[], Tensor]:
    """Return a function that decodes new tokens greedily, [B, new tokens].

    Each call starts from the same context in ``cache``.
    """
    layers, device = attention_layers(model), model.embedding.weight.device
    start = torch.zeros(shape.batch_size, 1, dtype=torch.long, device=device)

    @torch.inference_mode()
    def run() -> Tensor:
        for layer in layers:
            layer.backend = backend
        cache.truncate(shape.context)
        token, generated = start, []
        for _ in range(shape.seq_len):
            hidden = model.hidden_states(token, cache=cache)
            token = linear(hidden, model.output_weight).argmax(-1)
            generated.append(token)
        return torch.cat(generated, dim=1)

    return run
