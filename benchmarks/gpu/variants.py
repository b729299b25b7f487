"""Are hidden states and gradients of whole models right on this card? Every variant is asked.

In float32 and in bfloat16, by every backend, compiled and not, and token by token from a cache;
against the written-out maps in float64 on the same card.
"""

from functools import partial
from typing import Any

from models import backends
from runs import Answer, Questions, Setting, failed_part, main

BOUNDS = {"fp32": 2**-14, "bf16": 2**-4}
"""Norm of the error over that of what is exact, through two layers; of hidden states, of those by a
cache, and of the gradient of each matrix. Vectors and scalars, as lambda's, are sums that cancel:
their gradients are taken together. In bf16 the largest of a CPU is 0.039, of `tda`, of all others
0.022."""


def questions(setting: Setting) -> Questions:
    """One for each variant."""
    from difftransformer.models.attention.registry import variants

    names = setting.sized(variants(), ("diff_v1",))
    return {name: partial(compare, setting, name) for name in names}


def compare(setting: Setting, variant: str) -> Answer:
    """Relative errors, the largest of each kind, by backend and precision."""
    import torch

    from difftransformer.errors import BackendError, ConfigError

    drawn = torch.randint(64, (2, setting.sized(300, 20)), generator=_drawing(0))
    tokens = drawn.to(setting.device)
    exact = states(setting, variant, "eager", tokens, "fp32", double=True)
    found: Answer = {}
    for precision in setting.sized(("fp32", "bf16"), ("fp32",)):
        for backend in ["eager", *backends(setting, variant)]:
            for compiled in (False, True) if precision == "bf16" else (False,):
                name = f"{precision} {backend}{' compiled' if compiled else ''}"
                try:
                    given = states(setting, variant, backend, tokens, precision, compiled=compiled)
                except Exception as error:  # of a kernel or a compiler; the others go on
                    refused = type(error) in (BackendError, ConfigError)
                    found[name] = (
                        {"refused": str(error)} if refused else failed_part(name, error, setting)
                    )
                    continue
                errors = {
                    one: float((value.double() - exact[one]).norm() / exact[one].norm())
                    for one, value in given.items()
                }
                found[name] = {
                    "largest": max(errors, key=lambda one: errors[one]),
                    "error": max(errors.values()),
                    "within": all(error < BOUNDS[precision] for error in errors.values()),
                }
    return found


def states(
    setting: Setting,
    variant: str,
    backend: str,
    tokens: Any,
    precision: str,
    *,
    double: bool = False,
    compiled: bool = False,
) -> dict[str, Any]:
    """Hidden states, gradients by matrix, and, not compiled, the states of the last by a cache."""
    import torch

    from difftransformer.models.cache import PrefixCache
    from difftransformer.models.config import ModelConfig
    from difftransformer.models.device import autocast
    from difftransformer.models.transformer import Transformer
    from difftransformer.training.compiled import compiled_states

    config = ModelConfig(
        vocab_size=64,
        d_model=setting.sized(512, 32),
        num_layers=2,
        ffn_dim=setting.sized(1024, 64),
        attention={"variant": variant, "head_dim": setting.sized(64, 16)},
        max_positions=512,
    )
    torch.compiler.reset()
    model = Transformer.build(config, backend, seed=0).to(setting.device)
    model = model.double() if double else model
    hidden_states = compiled_states(model) if compiled else model.hidden_states
    probe = torch.randn(*tokens.shape, config.d_model, generator=_drawing(1)).to(setting.device)
    with autocast(torch.device(setting.device), precision):
        out = hidden_states(tokens)
    torch.autograd.backward((out * probe).sum())
    graded = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    found = {"states": out.detach()} | {k: one for k, one in graded.items() if one.ndim > 1}
    found["vectors"] = torch.cat([one.flatten() for one in graded.values() if one.ndim < 2])
    if compiled:
        return found
    cache = PrefixCache(tokens.shape[1])
    with torch.no_grad(), autocast(torch.device(setting.device), precision):
        parts = (tokens[:, :-2], tokens[:, -2:-1], tokens[:, -1:])
        steps = [model.hidden_states(part, cache=cache) for part in parts]
    return found | {"cached": torch.cat(steps[1:], dim=1)}


def _drawing(seed: int) -> Any:
    import torch

    return torch.Generator().manual_seed(seed)


if __name__ == "__main__":
    main("variants", __doc__, questions)
