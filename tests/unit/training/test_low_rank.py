"""GaLore and APOLLO against what their authors' packages compute (golden/low_rank.py)."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import make_run_config
from torch import Tensor, nn

from difftransformer.training import low_rank
from difftransformer.training.low_rank import LowRankAdamW, LowRankSettings, _Matrix

STEPS = 11
SHAPES = {"wide.weight": (6, 10), "tall.weight": (12, 7), "square.weight": (8, 8)}
GOLDEN = Path(__file__).with_name("golden") / "low_rank.json"


def gradients(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    shapes = SHAPES | {"gain": (5,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def starting() -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(tensor.clone()) for name, tensor in gradients(-1 % 2**32).items()}


def case_name(kind: str, rank: int, gap: int, scale: float, decay: float) -> str:
    return f"{kind} rank={rank} gap={gap} scale={scale} weight_decay={decay}"


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return loaded


def ours(settings: LowRankSettings, weight_decay: float) -> dict[str, nn.Parameter]:
    config = make_run_config(weight_decay=weight_decay, betas=(0.9, 0.99), eps=1e-6).training
    parameters = starting()
    optimizer = LowRankAdamW(parameters.items(), SHAPES, config, settings)
    for step in range(STEPS):
        for name, slope in gradients(step).items():
            parameters[name].grad = slope.clone()
        optimizer.step(1e-2 / (step + 1))
    return parameters


def check_parameters(result: dict[str, nn.Parameter], expected: dict[str, Any]) -> None:
    for name in SHAPES:
        torch.testing.assert_close(
            result[name].detach(), torch.tensor(expected[name]), atol=1e-6, rtol=1e-5
        )


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("rank", "gap"), [(3, 4), (3, 100), (20, 4)])
def test_galore_matches_its_authors(
    rank: int, gap: int, decay: float, golden: dict[str, Any]
) -> None:
    result = ours(LowRankSettings("galore", rank, gap, 0.25, seed=0), decay)
    check_parameters(result, golden["parameters"][case_name("galore", rank, gap, 0.25, decay)])


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("rank", "gap", "scale"), [(3, 4, 1.0), (3, 100, 2.0), (20, 4, 1.0)])
def test_apollo_matches_its_authors(
    rank: int,
    gap: int,
    scale: float,
    decay: float,
    golden: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both draw projections alike; only the seeds differ, so ours take theirs here."""
    seeds = golden["apollo_seeds"]
    monkeypatch.setattr(_Matrix, "_seed", lambda matrix, number: seeds[matrix.name][number])
    result = ours(LowRankSettings("apollo", rank, gap, scale, seed=0), decay)
    check_parameters(result, golden["parameters"][case_name("apollo", rank, gap, scale, decay)])


def test_projections_differ_by_update_matrix_and_seed() -> None:
    drawn = [
        low_rank.random_projection(torch.Size((6, 10)), 3, seed)
        for seed in {
            _Matrix(
                name,
                nn.Parameter(torch.zeros(6, 10)),
                make_run_config().training,
                LowRankSettings("apollo", 3, 4, 1.0, config_seed),
            )._seed(number)
            for name in ("a", "b")
            for config_seed in (0, 1)
            for number in (0, 1)
        }
    ]
    assert len(drawn) == 8
    assert not any(first.equal(second) for first, second in combinations(drawn, 2))


def test_unprojected_parameters_use_plain_adamw() -> None:
    settings = LowRankSettings("galore", 3, 4, 0.25, seed=0)
    result = ours(settings, 0.1)["gain"]
    plain = starting()["gain"]
    reference = torch.optim.AdamW([plain], lr=1.0, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.0)
    for step in range(STEPS):
        plain.grad = gradients(step)["gain"].clone()
        reference.param_groups[0]["lr"] = 1e-2 / (step + 1)
        reference.step()
    torch.testing.assert_close(result, plain, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("kind", ["galore", "apollo"])
def test_restored_optimizer_state_continues_bit_identically(kind: Any) -> None:
    settings = LowRankSettings(kind, 3, 4, 0.25, seed=0)
    config = make_run_config().training

    def run(parameters: dict[str, nn.Parameter], optimizer: LowRankAdamW, steps: range) -> None:
        for step in steps:
            for name, slope in gradients(step).items():
                parameters[name].grad = slope.clone()
            optimizer.step(1e-2)

    uninterrupted = starting()
    first = LowRankAdamW(uninterrupted.items(), SHAPES, config, settings)
    run(uninterrupted, first, range(6))
    saved = {name: tensor.clone() for name, tensor in first.tensors().items()}
    resumed = {
        name: nn.Parameter(tensor.detach().clone()) for name, tensor in uninterrupted.items()
    }
    second = LowRankAdamW(resumed.items(), SHAPES, config, settings)
    second.load_tensors(saved)
    run(uninterrupted, first, range(6, STEPS))
    run(resumed, second, range(6, STEPS))
    assert all(uninterrupted[name].equal(resumed[name]) for name in uninterrupted)
