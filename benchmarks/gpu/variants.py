"""Are hidden states and gradients of whole models right on this card? Every variant is asked.

In float32 and in bfloat16, by every backend, compiled and not, and token by token from a cache;
against the written-out maps in float64 on the same card.
"""

from functools import partial
from typing import Any

from models import backends
from runs import Answer, Questions, Setting, failure, main

BOUNDS = {"fp32": 2**-14, "bf16": 2**-4}
"""Norm of the error over that of what is exact, through two layers; gradients of a scalar, such as
lambda's, are sums that cancel: all gradients are taken together."""


def questions(setting: Setting) -> Questions:
    """One for each variant."""
    from difftransformer.models.attention.registry import variants

    names = setting.sized(variants(), ("diff_v1",))
    return {name: partial(compare, setting, name) for name in names}


def compare(setting: Setting, variant: str) -> Answer:
    """Relative errors of hidden states and of all gradients, by backend and precision."""
    import torch

    from difftransformer.errors import BackendError, ConfigError

    tokens = torch.randint(64, (2, setting.sized(300, 20)), device=setting.device)
    exact = states(setting, variant, "eager", tokens, "fp32", double=True)
    found: Answer = {}
    for precision in setting.sized(("fp32", "bf16"), ("fp32",)):
        for backend in ["eager", *backends(setting, variant)]:
            for compiled in (False, True) if precision == "bf16" else (False,):
                name = f"{precision} {backend}{' compiled' if compiled else ''}"
                try:
                    given = states(setting, variant, backend, tokens, precision, compiled=compiled)
                except (BackendError, ConfigError) as error:
                    found[name] = {"refused": str(error)}
                    continue
                except Exception as error:  # of a kernel or a compiler; the others go on
                    found[name] = failure(error) | {"within": False}
                    continue
                errors = [
                    float((one.double() - other).norm() / other.norm())
                    for one, other in zip(given, exact, strict=True)
                ]
                within = all(error < BOUNDS[precision] for error in errors)
                found[name] = {"errors": errors, "within": within}
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
) -> list[Any]:
    """Hidden states, all gradients in one tensor, and the states of the last tokens by a cache."""
    import torch

    from difftransformer.config.model import ModelConfig
    from difftransformer.models.cache import PrefixCache
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
    probe = torch.randn(
        *tokens.shape, config.d_model, generator=torch.Generator().manual_seed(1)
    ).to(setting.device)
    with autocast(torch.device(setting.device), precision):
        out = hidden_states(tokens)
    torch.autograd.backward((out * probe).sum())
    gradients = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
    found = [out.detach(), torch.cat(gradients)]
    if compiled:
        return [*found, found[0][:, -2:]]
    cache = PrefixCache(tokens.shape[1])
    with torch.no_grad(), autocast(torch.device(setting.device), precision):
        parts = (tokens[:, :-2], tokens[:, -2:-1], tokens[:, -1:])
        steps = [model.hidden_states(part, cache=cache) for part in parts]
    return [*found, torch.cat(steps[1:], dim=1)]


if __name__ == "__main__":
    main("variants", __doc__, questions)
