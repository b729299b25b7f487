"""Are the numbers right on this card? Each operation and backend against the formula in float64.

bfloat16 above all, whose products Triton's interpreter does not have right; odd lengths, more keys
than queries, shared heads, masks; and whether a second backward pass gives the same bits.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from runs import Answer, Questions, Setting, failed_part, main

# maps, d, e, T, S, output heads, key/value heads, masked
SHAPES = (
    (2, 32, 64, 129, 129, 4, 2, False),
    (2, 64, 128, 1000, 1000, 4, 4, False),
    (2, 96, 192, 333, 500, 4, 2, False),
    (2, 128, 256, 515, 515, 2, 1, False),
    (2, 64, 128, 200, 200, 4, 2, True),
    (1, 64, 64, 1000, 1000, 8, 2, False),
    (1, 128, 128, 77, 300, 4, 2, False),
    (1, 64, 128, 515, 515, 4, 4, False),
)
TINY = ((2, 16, 32, 37, 40, 2, 1, False), (1, 16, 16, 20, 20, 2, 1, True))
BOUNDS = {"bfloat16": 2**-6, "float16": 2**-9, "float32": 2**-16}
"""Norm of the error over that of what is exact: a few roundings of each type."""


def questions(setting: Setting) -> Questions:
    """One for each shape and type: outputs and gradients by every backend that can run here."""
    types = setting.sized(("bfloat16", "float16"), ("float32", "float16"))
    found: dict[str, Callable[[], Answer]] = {}
    for shape, dtype in product(setting.sized(SHAPES, TINY), types):
        name = f"{'x'.join(map(str, shape))} {dtype}"
        if shape[0] == 2:
            found[name] = partial(compare, setting, shape, dtype, "differential_attention")
            continue
        found[name] = partial(compare, setting, shape, dtype, "attention")
        found[f"{name} lse"] = partial(compare, setting, shape, dtype, "attention_with_lse")
    return found


def compare(setting: Setting, shape: tuple[int, ...], dtype: str, operation: str) -> Answer:
    """Relative errors of the output and of each gradient, by backend."""
    import torch

    from difftransformer.errors import BackendError
    from difftransformer.models.kernels import choose_backend, eager, get_kernel
    from difftransformer.models.kernels.fused.tiles import trying, ways_of

    inputs, mask, probe = tensors(setting, shape, getattr(torch, dtype))
    run = partial(outputs, operation, scale=shape[1] ** -0.5, mask=mask, probe=probe)
    exact = run(eager, [x.double() for x in inputs])
    found: Answer = {}
    for name in (*(f"fused {way}" for way in ways_of(shape[0])), "sdpa", "flash_attn"):
        backend, _, way = name.partition(" ")
        precision = "fp32" if dtype == "float32" else "bf16"
        try:
            choose_backend(backend, setting.device, precision)
            operations = get_kernel(backend)
            with trying({}, way=way or None):
                first, second = run(operations, inputs), run(operations, inputs)
        except Exception as error:  # of a kernel or a compiler; the others go on
            refused = type(error) is BackendError
            found[name] = {"refused": str(error)} if refused else failed_part(name, error, setting)
            continue
        errors = [
            float((one.double() - other).norm() / other.norm())
            for one, other in zip(first, exact, strict=True)
        ]
        found[name] = {
            "errors": errors,
            "within": all(error < BOUNDS[dtype] for error in errors),  # no NaN is
            "repeats_its_bits": all(map(torch.equal, first, second)),
        }
    return found


def tensors(setting: Setting, shape: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    """Queries, keys, values and lambda; the mask; a gradient of the output."""
    import torch

    maps, d, e, T, S, H, G, masked = shape
    generator = torch.Generator().manual_seed(0)
    sizes = ((maps * H, T, d), (maps * G, S, d), (G, S, e))
    drawn = [torch.randn(2, *size, generator=generator).to(dtype) for size in sizes]
    drawn += [torch.tensor(0.37)] if maps == 2 else []
    probe = torch.randn(2, T, H, e, generator=generator).to(dtype)
    seen = torch.rand(2, 1, T, S, generator=generator) > 0.5
    seen[..., 0] = True
    mask = seen.to(setting.device) if masked else None
    return [x.to(setting.device) for x in drawn], mask, probe.to(setting.device)


def outputs(
    operation: str, operations: Any, inputs: list[Any], *, scale: float, mask: Any, probe: Any
) -> list[Any]:
    """What an operation returns, and gradients through all of it."""
    import torch

    inputs = [x.detach().requires_grad_() for x in inputs]
    found = getattr(operations, operation)(*inputs, scale=scale, mask=mask)
    found = found if isinstance(found, tuple) else (found,)
    # Of the log-sum-exp [B, T, H] a column of the probe [B, T, H, e] is the gradient.
    probes = [probe if one.ndim == probe.ndim else probe[..., 0] for one in found]
    along = [one.to(out.dtype) for one, out in zip(probes, found, strict=True)]
    return [*(one.detach() for one in found), *torch.autograd.grad(found, inputs, along)]


if __name__ == "__main__":
    main("contract", __doc__, questions)
