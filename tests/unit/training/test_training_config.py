from typing import Any

import pytest
from pydantic import ValidationError

from difftransformer.config.training import ProbeConfig, TrainingConfig

BASE: dict[str, Any] = {"steps": 10, "seq_len": 8, "batch_size": 4, "lr": 0.1, "warmup_steps": 1}


def test_token_budget_rounds_up_to_whole_steps() -> None:
    config = TrainingConfig(**(BASE | {"steps": None, "tokens": 65}))
    assert (config.tokens_per_step, config.total_steps, config.micro_batch) == (32, 3, 4)


def test_betas_come_as_a_list_from_yaml() -> None:
    assert TrainingConfig.model_validate(BASE | {"betas": [0.9, 0.98]}).betas == (0.9, 0.98)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": None}, "exactly one of tokens and steps"),
        ({"tokens": 100}, "exactly one of tokens and steps"),
        ({"micro_batch_size": 3}, "does not divide"),
        ({"warmup_steps": 10}, "must be below"),
        ({"betas": [0.9, 1.0]}, "betas"),
        ({"betas": [0.9]}, "betas"),
        ({"lr": "0.1"}, "lr"),
        ({"learning_rate": 0.1}, "learning_rate"),
        ({"precision": "fp16"}, "precision"),
        ({"backend": "flash_attn"}, "flash_attn computes in half precision; set precision: bf16"),
        ({"backend": "flash_attn", "device": "cpu"}, "half precision"),
        ({"backend": "fused"}, "fused computes in half precision"),
    ],
)
def test_refuses(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainingConfig.model_validate(BASE | change)


def test_fused_is_interpreted_on_a_cpu_in_full_precision() -> None:
    TrainingConfig.model_validate(BASE | {"backend": "fused", "device": "cpu"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "needs a probe"),
        ({"probe": {}, "save_checkpoints_at": [0.5]}, "no save_checkpoints_at"),
        ({"probe": {}, "warmup_steps": 95}, "exceed the run's 100 steps"),
    ],
)
def test_refuses_a_cooldown_that_cannot_be(change: dict[str, Any], words: str) -> None:
    base = BASE | {"steps": 100, "tokens": None, "cooldown_after_learning": 10}
    with pytest.raises(ValidationError, match=words):
        TrainingConfig.model_validate(base | change)


def test_probe_measures_the_needles_that_decide() -> None:
    with pytest.raises(ValidationError, match="learned_needles 4"):
        ProbeConfig(needles=[2, 8])
