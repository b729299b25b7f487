"""GaLore and APOLLO, step by step against their authors' packages."""

import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_training import make_slice
from torch import Tensor, nn

from difftransformer.training import low_rank
from difftransformer.training.low_rank import LowRankAdamW, LowRankSettings, _Matrix

STEPS = 11
SHAPES = {"wide.weight": (6, 10), "tall.weight": (12, 7), "square.weight": (8, 8)}


@pytest.fixture
def _no_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages import 8-bit optimisers, which nothing here needs."""
    if importlib.util.find_spec("bitsandbytes") is None:
        for name in ("bitsandbytes", "bitsandbytes.functional", "bitsandbytes.optim"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        optimiser = types.ModuleType("bitsandbytes.optim.optimizer")
        optimiser.Optimizer2State = object  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, optimiser.__name__, optimiser)


def gradients(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    shapes = SHAPES | {"gain": (5,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def starting() -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(one.clone()) for name, one in gradients(-1 % 2**32).items()}


def ours(settings: LowRankSettings, weight_decay: float) -> dict[str, nn.Parameter]:
    config = make_slice(weight_decay=weight_decay, betas=(0.9, 0.99), eps=1e-6).training
    parameters = starting()
    optimiser = LowRankAdamW(parameters.items(), SHAPES, config, settings)
    for step in range(STEPS):
        for name, slope in gradients(step).items():
            parameters[name].grad = slope.clone()
        optimiser.step(1e-2 / (step + 1))
    return parameters


def theirs(
    make: Callable[[list[dict[str, Any]]], Any], settings: LowRankSettings, decay: float
) -> dict[str, nn.Parameter]:
    parameters = starting()
    matrices = [parameters[name] for name in SHAPES]
    options: dict[str, Any] = {
        "rank": settings.rank, "update_proj_gap": settings.gap, "scale": settings.scale,
        "proj_type": "std", "proj": "random", "scale_type": "channel",
    }  # fmt: skip
    optimiser = make([{"params": matrices, "weight_decay": decay} | options])
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = 1e-2 / (step + 1)
        for name, slope in gradients(step).items():
            parameters[name].grad = slope.clone()
        optimiser.step()
    return parameters


@pytest.mark.usefixtures("_no_bitsandbytes")
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("rank", "gap"), [(3, 4), (3, 100), (20, 4)])
def test_galore_is_that_of_its_authors(rank: int, gap: int, decay: float) -> None:
    from galore_torch import GaLoreAdamW

    settings = LowRankSettings("galore", rank, gap, 0.25, seed=0)
    found = ours(settings, decay)
    expected = theirs(
        lambda groups: GaLoreAdamW(
            groups, betas=(0.9, 0.99), eps=1e-6, no_deprecation_warning=True
        ),
        settings,
        decay,
    )
    for name in SHAPES:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("_no_bitsandbytes")
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("rank", "gap", "scale"), [(3, 4, 1.0), (3, 100, 2.0), (20, 4, 1.0)])
def test_apollo_is_that_of_its_authors(
    rank: int, gap: int, scale: float, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both draw alike; only the seeds are each one's own, so that theirs are given to ours."""
    from apollo_torch import APOLLOAdamW
    from apollo_torch.random_projector import next_seed

    def seed(matrix: Any, number: int) -> int:
        found = 1 + list(SHAPES).index(matrix.name)
        for _ in range(number):
            found = next_seed(found)
        return found

    monkeypatch.setattr(_Matrix, "_seed", seed)
    settings = LowRankSettings("apollo", rank, gap, scale, seed=0)
    found = ours(settings, decay)
    expected = theirs(
        lambda groups: APOLLOAdamW(
            groups, betas=(0.9, 0.99), eps=1e-6, no_deprecation_warning=True, scale_front=False
        ),
        settings,
        decay,
    )
    for name in SHAPES:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=1e-5)


def test_projections_of_a_matrix_differ_in_time_name_and_seed() -> None:
    drawn = [
        low_rank.random_projection(torch.Size((6, 10)), 3, one)
        for one in {
            _Matrix(
                name,
                nn.Parameter(torch.zeros(6, 10)),
                make_slice().training,
                LowRankSettings("apollo", 3, 4, 1.0, seed),
            )._seed(number)
            for name in ("a", "b")
            for seed in (0, 1)
            for number in (0, 1)
        }
    ]
    assert len(drawn) == 8
    assert all(not one.equal(other) for one in drawn for other in drawn if one is not other)


def test_what_is_not_projected_is_plain_adamw() -> None:
    settings = LowRankSettings("galore", 3, 4, 0.25, seed=0)
    found = ours(settings, 0.1)["gain"]
    plain = starting()["gain"]
    reference = torch.optim.AdamW([plain], lr=1.0, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.0)
    for step in range(STEPS):
        plain.grad = gradients(step)["gain"].clone()
        reference.param_groups[0]["lr"] = 1e-2 / (step + 1)
        reference.step()
    torch.testing.assert_close(found, plain, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("kind", ["galore", "apollo"])
def test_its_state_goes_on_to_the_same_bits(kind: Any) -> None:
    settings = LowRankSettings(kind, 3, 4, 0.25, seed=0)
    config = make_slice().training

    def run(parameters: dict[str, nn.Parameter], optimiser: LowRankAdamW, steps: range) -> None:
        for step in steps:
            for name, slope in gradients(step).items():
                parameters[name].grad = slope.clone()
            optimiser.step(1e-2)

    whole = starting()
    first = LowRankAdamW(whole.items(), SHAPES, config, settings)
    run(whole, first, range(6))
    saved = {name: one.clone() for name, one in first.tensors().items()}
    resumed = {name: nn.Parameter(one.detach().clone()) for name, one in whole.items()}
    second = LowRankAdamW(resumed.items(), SHAPES, config, settings)
    second.load_tensors(saved)
    run(whole, first, range(6, STEPS))
    run(resumed, second, range(6, STEPS))
    assert all(whole[name].equal(resumed[name]) for name in whole)
