"""Decoding: one new token at 1K to 64K cached ones, one call of attention and a whole model.

By how much is a differential head behind a plain one, and does the fused kernel, which has no
split over keys, beat the written-out maps that all backends take for a single query?
"""

import math
import statistics
from functools import partial
from itertools import product
from typing import Any

from models import ROWS, build, config
from runs import Answer, Questions, Setting, compared, main, timed

CACHED = (1024, 8192, 65536)
BATCHES = (1, 16)
HEADS, GROUPS, HEAD_DIM = 8, 8, 64


def questions(setting: Setting) -> Questions:
    """One for each batch and number of cached positions, of a call and of a model."""
    sizes = list(product(setting.sized(CACHED, (20,)), setting.sized(BATCHES, (1,))))
    calls = {f"call S {S} B {B}": partial(one_call, setting, S, B) for S, B in sizes}
    rows = [row for row in ROWS if row in ("transformer", "diff_v1", "diff_v2")]
    return calls | {
        f"model {row} S {S} B {B}": partial(whole_model, setting, row, S, B)
        for (S, B), row in product(sizes, rows)
        if S * B <= 2**18  # keys and values of more do not fit beside the model
    }


def one_call(setting: Setting, S: int, B: int) -> Answer:
    """A differential head by both ways, and the plain heads of a Transformer, take turns."""
    import torch

    from difftransformer.models.kernels import sdpa
    from difftransformer.models.kernels.fused.operations import fused_attention

    dtype = setting.sized(torch.bfloat16, torch.float16)
    d, H, G = setting.sized((HEAD_DIM, HEADS, GROUPS), (16, 2, 1))
    draw = partial(torch.randn, dtype=dtype, device=setting.device)
    q, k, v = draw(B, 2 * H, 1, d), draw(B, 2 * G, S, d), draw(B, G, S, 2 * d)
    plain_v = draw(B, 2 * G, S, d)
    lam = torch.tensor(0.37, device=setting.device)
    given: dict[str, Any] = {"scale": 1 / math.sqrt(d), "mask": None}
    steps = {
        "plain sdpa": partial(sdpa.attention, q, k, plain_v, **given),
        "written out": partial(sdpa.differential_attention, q, k, v, lam, **given),
        "fused kernel": partial(fused_attention, q, k, v, lam, None, given["scale"], False),
    }
    with torch.no_grad():
        return compared(timed(steps, setting), "plain sdpa")


def whole_model(setting: Setting, row: str, S: int, B: int) -> Answer:
    """Seconds for a token of each sequence, and sequences times tokens in a second."""
    import torch

    from difftransformer.models.cache import PrefixCache

    dtype = setting.sized(torch.bfloat16, torch.float32)
    model = build(setting, row, setting.sized("fused", "sdpa"), S + 1).to(dtype)
    device = torch.device(setting.device)
    cache, layers = PrefixCache(S + 1), model.config.num_layers
    attention = model.layers[0].attention
    keys = torch.randn(B, attention.num_keys, S, attention.head_dim, device=device, dtype=dtype)
    values = torch.randn(
        B, attention.num_kv_heads, S, attention.value_dim, device=device, dtype=dtype
    )
    for index in range(layers):
        cache.update(keys, values, index)
    tokens = torch.zeros(B, 1, dtype=torch.long, device=device)

    def step() -> None:
        cache.keep(S)
        with torch.no_grad():
            model.hidden_states(tokens, cache=cache)

    seconds = timed({"token": step}, setting)
    speed = B / statistics.median(seconds["token"])
    width = config(setting, row, S + 1).d_model
    return {**compared(seconds, "none"), "tokens_per_second": speed, "d_model": width}


if __name__ == "__main__":
    main("decoding", __doc__, questions)
