from itertools import pairwise
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftransformer.config.training import ProbeConfig, TrainingConfig
from difftransformer.training.trainer import learning_rate


@st.composite
def configs(draw: st.DrawFn) -> TrainingConfig:
    steps = draw(st.integers(1, 300))
    return TrainingConfig(
        steps=steps,
        seq_len=8,
        batch_size=2,
        lr=draw(st.floats(1e-6, 1.0)),
        min_lr_ratio=draw(st.floats(0.0, 1.0)),
        warmup_steps=draw(st.integers(0, steps - 1)),
        decay=draw(st.sampled_from(["linear", "cosine"])),
    )


@given(configs())
def test_rises_to_the_peak_then_falls_to_the_floor(config: TrainingConfig) -> None:
    steps = config.total_steps
    rates = [learning_rate(step, config, steps) for step in range(1, steps + 1)]
    peak = max(config.warmup_steps, 1)
    assert all(0 <= rate <= config.lr * (1 + 1e-12) for rate in rates)
    assert isclose(rates[peak - 1], config.lr)
    assert rates[:peak] == sorted(rates[:peak])
    falling = [-rate for rate in rates[peak - 1 :]]
    assert all(a <= b + 1e-12 * config.lr for a, b in pairwise(falling))
    if config.total_steps > peak:
        assert isclose(rates[-1], config.lr * config.min_lr_ratio, abs_tol=1e-12 * config.lr)


def test_linear_values() -> None:
    config = TrainingConfig(
        steps=10, seq_len=8, batch_size=2, lr=1.0, min_lr_ratio=0.5, warmup_steps=2
    )
    rates = [learning_rate(step, config, 10) for step in range(1, 11)]
    falling = [1.0, 0.9375, 0.875, 0.8125, 0.75, 0.6875, 0.625, 0.5625, 0.5]
    assert rates == pytest.approx([0.5, *falling])


def test_stays_at_the_peak_until_the_cooldown_wherever_the_run_ends() -> None:
    config = TrainingConfig(
        steps=20, seq_len=8, batch_size=2, lr=1.0, min_lr_ratio=0.5, warmup_steps=2,
        probe=ProbeConfig(), cooldown_after_learning=4,
    )  # fmt: skip
    for last in (20, 9):
        rates = [learning_rate(step, config, last) for step in range(1, last + 1)]
        assert rates == pytest.approx([0.5] + [1.0] * (last - 5) + [0.875, 0.75, 0.625, 0.5])
