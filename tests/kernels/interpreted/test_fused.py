"""The fused kernels in Triton's interpreter against the formula in float64.

Its product of bfloat16 is wrong by construction: float32 and float16 here, bfloat16 on a card by
benchmarks/gpu/contract.py.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from difftransformer.errors import BackendError
from difftransformer.models.kernels import choose_backend, eager, fused
from difftransformer.models.kernels.fused.launch import Call, specialized
from difftransformer.models.kernels.fused.operations import fused_attention
from difftransformer.models.kernels.fused.tiles import BACKWARD, Tile, kernel_for, trying, ways_of

sys.path.insert(0, str(Path(__file__).parents[2] / "attention"))


class Case(NamedTuple):
    """Sizes as in `models.kernels.Kernel`; ``maps`` of a head."""

    maps: int
    d: int
    e: int
    T: int
    S: int
    B: int = 1
    H: int = 1
    G: int = 1
    dtype: torch.dtype = torch.float32
    masked: bool = False

    def inputs(self) -> list[Tensor]:
        """q, k, v, and lam where there are two maps; parts of buffers that are otherwise NaN."""
        generator = torch.Generator().manual_seed(0)
        M, actual = self.maps, []
        for heads, rows, width in (
            (M * self.H, self.T, self.d),
            (M * self.G, self.S, self.d),
            (self.G, self.S, self.e),
        ):
            buffer = torch.full((self.B, heads + 1, rows + 3, width + 8), torch.nan)
            part = buffer[:, :heads, 2 : rows + 2, :width]
            part.normal_(generator=generator)
            actual.append(buffer.to(self.dtype)[:, :heads, 2 : rows + 2, :width])
        return [*actual, torch.tensor(0.37)] if M == 2 else actual

    def mask(self) -> Tensor | None:
        """Half of the keys at random, and none at all for the first query."""
        if not self.masked:
            return None
        drawn = torch.rand(self.B, 1, self.T, self.S, generator=torch.Generator().manual_seed(1))
        seen = drawn > 0.5
        seen[..., 1:, 0] = True
        return seen


CASES = [
    Case(2, 8, 16, 70, 70, H=2, G=1),
    Case(2, 32, 64, 33, 50, B=2),
    Case(2, 64, 128, 65, 65),
    Case(2, 96, 192, 37, 45),
    Case(2, 128, 256, 5, 40),
    Case(2, 16, 32, 1, 35),
    Case(2, 16, 32, 35, 35, masked=True),
    Case(2, 8, 16, 131, 131),
    Case(1, 32, 32, 70, 101, H=2),
    Case(1, 24, 48, 40, 40, H=2, G=1),
    Case(1, 128, 128, 5, 5),
]
HALF = [
    case._replace(dtype=torch.float16)
    for case in (
        Case(2, 32, 64, 70, 70),
        Case(2, 32, 64, 33, 40, H=2, G=1),
        Case(2, 96, 192, 37, 45),
        Case(2, 16, 32, 35, 35, masked=True),
        Case(1, 64, 64, 33, 40),
        Case(1, 24, 48, 40, 40, H=2, G=1),
    )
]


def run(case: Case, module: Any, dtype: torch.dtype) -> list[Tensor]:
    """Output and gradients; of single maps by the operation with the log-sum-exp."""
    inputs = [x.to(dtype) if x.ndim else x for x in case.inputs()]
    if dtype == torch.float64:
        inputs = [x.double() for x in inputs]
    inputs = [x.detach().requires_grad_() for x in inputs]
    arguments = {"scale": case.d**-0.5, "mask": case.mask()}
    if case.maps == 2:
        outs = [module.differential_attention(*inputs, **arguments)]
    else:
        outs = list(module.attention_with_lse(*inputs, **arguments))
    generator = torch.Generator().manual_seed(2)
    probes = [torch.randn(out.shape, generator=generator).to(out.dtype) for out in outs]
    return [*(out.detach() for out in outs), *torch.autograd.grad(outs, inputs, probes)]


def errors(actual: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Largest error of each as a share of the largest value."""
    return [
        float((tensor.double() - other).abs().max() / other.abs().max())
        for tensor, other in zip(actual, exact, strict=True)
    ]


def exact_results(case: Case) -> list[Tensor]:
    """By the formula; a query that sees nothing gathers nothing, where the formula has NaN."""
    if not case.masked:
        return run(case, eager, torch.float64)
    return run(case._replace(masked=True), _Empty, torch.float64)


class _Empty:
    """The formula with maps of zeros for queries without keys."""

    @staticmethod
    def differential_attention(
        q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor
    ) -> Tensor:
        first, second = (
            (q[:, i::2] @ k[:, i::2].mT * scale).masked_fill(~mask, -1e30).softmax(dim=-1).mul(mask)
            for i in (0, 1)
        )
        return ((first - lam * second) @ v).transpose(1, 2)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_is_the_formula(case: Case) -> None:
    actual, exact = run(case, fused, torch.float32), exact_results(case)
    *most, last = errors(actual, exact)
    assert max(most) < 2e-6
    assert last < (5e-6 if case.maps == 2 else 2e-6)


@pytest.mark.parametrize("case", HALF, ids=str)
def test_float16_is_rounded_and_no_more(case: Case) -> None:
    assert max(errors(run(case, fused, torch.float16), exact_results(case))) < 1e-3


@pytest.mark.parametrize("case", [CASES[0], CASES[8]], ids=str)
def test_all_backward_variants_give_the_same_gradients(case: Case) -> None:
    q, k, v, *lam = case.inputs()
    call = Call(q, k, v, lam[0] if lam else None, None, case.d**-0.5)
    out, second, lse = call.attend(keep=True)
    generator = torch.Generator().manual_seed(2)
    grad = torch.randn(out.shape, generator=generator)
    first, *others = (
        call.differentiate(grad, None, out, second, lse, way=way) for way in ways_of(case.maps)
    )
    assert len(others) == case.maps
    for actual in others:
        for first_tensor, other in zip(first, actual, strict=True):
            torch.testing.assert_close(first_tensor, other)


AHEAD = [
    (case, ahead)
    for case in (CASES[0], CASES[3], CASES[6], CASES[8])
    for ahead in range(1, case.maps + 1)
]


@pytest.mark.parametrize(("case", "ahead"), AHEAD, ids=str)
def test_scores_of_the_next_tile_are_those_of_the_tile_itself(case: Case, ahead: int) -> None:
    """All sums have the order they had, so that no bit changes; tiles are small: one is next."""
    q, k, v, *lam = case.inputs()
    call = Call(q, k, v, lam[0] if lam else None, case.mask(), case.d**-0.5)
    out, second, lse = call.attend(keep=True)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    for way in set(ways_of(case.maps)) - {"atomic"}:
        kernels = [
            kernel_for(name, case.maps, case.d, case.e, masked=case.masked)
            for name in BACKWARD[way]
        ]
        by_ahead = []
        for most in (0, ahead):
            tiles = {kernel: Tile(16, 16, 8, 1, min(most, kernel.most_ahead)) for kernel in kernels}
            with trying(tiles):
                by_ahead.append(call.differentiate(grad, None, out, second, lse, way=way))
        assert all(torch.equal(tensor, other) for tensor, other in zip(*by_ahead, strict=True))


@pytest.mark.parametrize("warps", [1, 2, 4, 8, 16])
def test_copies_of_numbers_of_rows_are_those_numbers(warps: int) -> None:
    """Of a tile of 16 queries there are as many copies as warps."""
    case = CASES[0]
    q, k, v, lam = case.inputs()
    call = Call(q, k, v, lam, None, case.d**-0.5)
    out, second, lse = call.attend(keep=True)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    kernel = kernel_for("keys", 2, case.d, case.e)
    constants = specialized(kernel, Tile(16, 32, warps, 1))[1]
    assert constants["COPIES"] == warps and constants["AHEAD"] == 0
    constants = specialized(kernel, Tile(64, 32, 4, 1, 2))[1]
    assert constants["COPIES"] == 1 and constants["AHEAD"] == 2
    actual = call.differentiate(grad, None, out, second, lse, way="together")
    with trying({kernel: Tile(16, 32, warps, 1)}):
        copied = call.differentiate(grad, None, out, second, lse, way="together")
    for tensor, other in zip(actual, copied, strict=True):
        torch.testing.assert_close(tensor, other)


def test_a_wide_head_is_refused() -> None:
    case = Case(1, 256, 256, 4, 4)
    with pytest.raises(BackendError, match="no kernel for head_dim 256 with values of 256: it"):
        run(case, fused, torch.float32)
    with pytest.raises(BackendError, match="no kernel for head_dim 16 with values of 64"):
        run(Case(2, 16, 64, 4, 4), fused, torch.float32)


@pytest.mark.parametrize("backward", [False, True])
def test_unsupported_inputs_raise(backward: bool) -> None:
    """A mask for each head, a lambda for each, and queries that would look in front of the keys."""
    case = Case(2, 16, 32, 5, 7, B=2, H=2, G=2)
    q, k, v, lam = (x.contiguous().requires_grad_(backward) for x in case.inputs())
    seen = torch.ones(2, 2, 5, 7, dtype=torch.bool)
    attend = partial(fused.differential_attention, scale=0.3)
    with pytest.raises(
        BackendError, match=r"a mask \[2 or 1, 1, 5, 7\] for all heads, got \[2, 2,"
    ):
        attend(q, k, v, lam, mask=seen)
    with pytest.raises(BackendError, match=r"got \[2, 1, 1, 7\]; use sdpa"):
        attend(q, k, v, lam, mask=seen[:, :1, :1])
    with pytest.raises(BackendError, match=r"one lambda for all heads, got \[2, 1, 1\]; use sdpa"):
        attend(q, k, v, lam.expand(2, 1, 1), mask=None)
    with pytest.raises(BackendError, match="takes 5 queries of 4 keys with a mask only"):
        attend(q, k[:, :, :4], v[:, :, :4], lam, mask=None)


def test_bfloat16_is_refused_where_the_interpreter_gets_it_wrong() -> None:
    with pytest.raises(BackendError, match=r"got torch\.bfloat16.* on cpu; set precision bf16"):
        run(Case(2, 8, 16, 4, 4), fused, torch.bfloat16)


def test_the_interpreter_is_a_device_for_it() -> None:
    assert choose_backend("fused", "cpu") == "fused"


@pytest.mark.parametrize("maps", [1, 2])
def test_torch_accepts_the_operation(maps: int) -> None:
    q, k, v, *lam = (x.requires_grad_() for x in Case(maps, 8, 8 * maps, 9, 11).inputs())
    torch.library.opcheck(fused_attention, (q, k, v, lam[0] if lam else None, None, 0.3, True))


def test_a_compiled_layer_has_no_break_and_the_same_numbers() -> None:
    from small_layers import SHARINGS, build, inputs

    layer = build({"variant": "diff_v1", **SHARINGS["mqa"]}, "fused")
    x, rope = inputs(layer, 9, batch=1)
    x.requires_grad_()
    by_layer: list[list[Tensor]] = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        out = call(x, rope)
        by_layer.append([out, *torch.autograd.grad(out.sum(), [x, *layer.parameters()])])
    for plain, compiled in zip(*by_layer, strict=True):
        torch.testing.assert_close(plain, compiled)


def test_without_gradients_the_second_output_is_not_written() -> None:
    q, k, v, lam = Case(2, 8, 16, 4, 4).inputs()
    assert fused_attention(q, k, v, lam, None, 0.3, False)[1].numel() == 0


def test_the_fake_has_the_sizes_of_a_card() -> None:
    q, k, v, lam = (
        torch.empty(x.shape, dtype=torch.bfloat16, device="meta")
        for x in Case(2, 64, 128, 9, 11, B=2, H=4, G=2).inputs()
    )
    out = fused.differential_attention(q, k, v, lam, scale=0.3, mask=None)
    assert out.shape == (2, 9, 4, 128) and out.is_meta and out.dtype == torch.bfloat16
