"""Decoded tokens of every row at every batch size and context length, and what its cache takes.

Shapes: B = batch, S = positions in the cache.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from difftransformer.config.timing import TimingSlice
from difftransformer.convert.watching import attention_layers
from difftransformer.evaluation.subject import Metrics
from difftransformer.evaluation.timing import CLOCKS, Clock, Turn, rated, take_turns, time_shape
from difftransformer.machine.memory import require_room
from difftransformer.measurements.decoding.settings import MODE, MODEL, Timing, load_name
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import ModelConfig
from difftransformer.models.matrices import linear
from difftransformer.models.sizes import cached_numbers, count_parameters
from difftransformer.models.transformer import Transformer

_READ = 256
"""Positions of a long context that a model reads itself."""


def measure(slice: TimingSlice, device: torch.device, process: int = 0) -> Metrics:
    """Time every row at every batch size and context length, in the order of turns of a process.

    Returns:
        Those of `time_shape`; cache_bytes/{row}: what the tensors of the cache grow by for each
        position of one sequence; least_bytes/{shape}/{row}: what must be read for each token, the
        weights once for all sequences and each sequence's cache; memory_bandwidth: bytes
        per second that the device's memory gives, None where it is not known.

    The speed of a GPU's memory is that of its data sheet, of a CPU's how fast it reads a large
    matrix in this job.

    Raises:
        UserError: Models and caches are more than the memory that is free.
    """
    config = slice.config
    assert isinstance(config, Timing), slice.measurement
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    _require_memory([one[MODEL] for one in slice.models.values()], config, dtype, device)
    models = {
        row: Transformer.build(one[MODEL], "sdpa", 0).to(device, dtype).eval()
        for row, one in slice.models.items()
    }
    metrics: Metrics = {"memory_bandwidth": memory_speed(config, device)}
    for batch, context in config.loads:
        metrics |= _measure(models, config, batch, context, device, process)
    return metrics


def memory_speed(config: Timing, device: torch.device) -> float | None:
    """Bytes a second that the settings give for a GPU, None without its name, or a CPU reads."""
    if device.type == "cuda":
        return rated(config.memory_bandwidth, device)
    return reading_speed(CLOCKS[config.clock])


@torch.inference_mode()
def reading_speed(clock: Clock, rows: int = 1 << 14) -> float:
    """Bytes a second of the quickest of some products of a matrix of 4096 columns and a vector.

    Of 256 MiB, which few processors have for a cache.
    """
    matrix, vector = torch.ones(rows, 1 << 12), torch.ones(1 << 12)
    taken = take_turns({"read": lambda: matrix @ vector}, warmup=1, repeats=5, clock=clock)
    return float(matrix.nbytes / min(taken["read"]))


def _require_memory(
    models: list[ModelConfig], config: Timing, dtype: torch.dtype, device: torch.device
) -> None:
    """Refuse what cannot fit before anything is timed: the largest caches of all rows at a time."""
    positions = max(config.batches) * (max(config.contexts) + config.new_tokens)
    weights = dtype.itemsize * sum(map(count_parameters, models))
    caches = dtype.itemsize * sum(map(cached_numbers, models)) * positions
    require_room(
        weights + caches,
        device,
        f"decoding: timing {len(models)} models",
        f"lower timings.decoding.batches ({max(config.batches)}) or timings.decoding.contexts "
        f"({max(config.contexts)})",
    )


@torch.inference_mode()
def _measure(
    models: dict[str, Transformer],
    config: Timing,
    batch: int,
    context: int,
    device: torch.device,
    process: int,
) -> Metrics:
    """Time all rows at one batch size and context length; their caches exist together."""
    new = config.new_tokens
    caches = {row: filled_cache(one, batch, context, new) for row, one in models.items()}
    steps = {
        Turn(row, backend, MODE): turn(model, backend, caches[row], batch, context, new)
        for row, model in models.items()
        for backend in config.backends
    }
    shape = load_name(batch, context)
    timed = time_shape(shape, config.timed()[shape], steps, config, device, process)
    for row, model in models.items():
        held = cache_bytes(caches[row], len(model.layers))
        timed[f"cache_bytes/{row}"] = held
        positions = context + (new + 1) / 2  # on average, its own among them
        timed[f"least_bytes/{shape}/{row}"] = weight_bytes(model) / batch + held * positions
    return timed


def weight_bytes(model: Transformer) -> int:
    """Bytes of the weights that a step reads: all, but for an embedding that is apart."""
    every = sum(parameter.nbytes for parameter in model.parameters())
    return every if model.lm_head is None else every - model.embedding.weight.nbytes


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
    layers = attention_layers(model)
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
