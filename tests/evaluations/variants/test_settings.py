"""Options of a section of variants, and facts about the size of each model."""

from types import SimpleNamespace
from typing import Any

import pytest

from difftransformer.config.validation import validate
from difftransformer.errors import ConfigError
from difftransformer.evaluations.variants.settings import Options
from difftransformer.models.config import ModelConfig
from difftransformer.models.sizes import count_parameters, training_flops

SCORE = {"header": "Needles ↑", "suite": "needles", "metric": "accuracy_n6_r2", "decimals": 2}


def options(**changes: Any) -> Options:
    paired_run = {
        "needles": SCORE | {"of_paired_run": True},
        "depth": SCORE | {"of_paired_run": True},
    }
    settings = {
        "scores": {"valid": SCORE | {"suite": "validation"}, **paired_run},
        "note": "Scores.",
    }
    validated: Options = validate(Options, settings | changes, "options")
    return validated


def test_paired_runs_are_measured_only_by_the_suites_of_their_scores() -> None:
    validated = options()
    assert (validated.paired_suites, validated.timing) == (["needles"], None)
    assert options(timed_by="throughput").timing == "throughput"
    assert validated.scores["needles"].name == "Needles"
    with pytest.raises(ConfigError, match=r"scores.*suit: unknown key; did you mean 'suite'"):
        options(scores={"valid": {**SCORE, "suit": "validation"}})


def test_facts_are_those_of_the_model() -> None:
    attention = {"variant": "diff_v2", "head_dim": 4, "heads_per_kv_head": 2}
    model = ModelConfig(
        vocab_size=32, d_model=16, num_layers=3, ffn_dim=24, max_positions=8, attention=attention
    )
    run: Any = SimpleNamespace(model=model, training=SimpleNamespace(seq_len=8))
    assert options().facts(run) == {
        "parameters": count_parameters(model),
        "ffn_dim": 24,
        "kv_bytes": 2 * 3 * 2 * 2 * 4,  # 16 bits, layers, groups, keys and values, dimensions
        "training_flops": training_flops(model, 8),
    }
