"""Bounds of fake quantisation, by bits and by group."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from difftransformer.analysis.quantisation import Granularity, absmax_tap

SEEN = torch.ones(5, 5, dtype=torch.bool).tril()
GROUPS: dict[Granularity, tuple[int, ...]] = {"tensor": (0, 1, 2, 3), "head": (2, 3), "row": (3,)}


def logits(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, 5, 5, generator=generator) * 10


@given(
    st.integers(0, 2**16),
    st.sampled_from([2, 4, 6, 8, 16]),
    st.sampled_from(["tensor", "head", "row"]),
)
def test_error_is_at_most_half_a_step_of_the_group(
    seed: int, bits: int, granularity: Granularity
) -> None:
    exact = torch.where(SEEN, logits(seed), 0.0)
    found = absmax_tap(bits, granularity)(logits(seed), SEEN)
    step = exact.abs().amax(GROUPS[granularity], keepdim=True) / (2 ** (bits - 1) - 1)
    rounding = 4 * torch.finfo(torch.float32).eps * exact.abs()
    assert ((found - exact).abs() <= 0.5 * step + rounding).all()
    levels = (found / step)[SEEN.expand_as(found)]
    torch.testing.assert_close(levels, levels.round(), rtol=1e-5, atol=1e-5)
    assert levels.abs().max().round() == 2 ** (bits - 1) - 1


@pytest.mark.parametrize("granularity", ["head", "row"])
def test_other_sequences_of_the_batch_change_nothing(granularity: Granularity) -> None:
    tap, both = absmax_tap(4, granularity), logits(1)
    assert torch.equal(tap(both, SEEN)[:1], tap(both[:1], SEEN))


def test_what_is_not_attended_to_sets_no_scale_and_zeros_stay() -> None:
    hidden = torch.where(SEEN, logits(2), 1e6)
    assert torch.equal(absmax_tap(6, "row")(hidden, SEEN), absmax_tap(6, "row")(logits(2), SEEN))
    assert torch.equal(absmax_tap(4, "row")(torch.zeros(1, 1, 5, 5), SEEN), torch.zeros(1, 1, 5, 5))
