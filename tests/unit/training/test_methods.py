"""Errors in the settings of fine-tuning methods, reported before anything trains."""

from pathlib import Path
from typing import Any

import pytest

from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan
from difftransformer.training.methods import configure


@pytest.mark.parametrize(
    ("adapt", "output"),
    [
        ({}, "adapt.method: missing"),
        ({"method": "lorra"}, "unknown method 'lorra'; did you mean 'lora'"),
        ({"method": "lora", "rnk": 4}, "rnk"),
        ({"method": "lora", "rank": 0}, "rank"),
        ({"method": "dex", "heads": "all", "share": 0.5}, "share changes nothing with heads: all"),
        ({"method": "dex", "heads": [0], "sequences": 8}, "sequences changes nothing with heads"),
        ({"method": "dex", "lambda_schedule": "fixed", "annealing": 0.1}, "annealing changes noth"),
        (
            {"method": "dex", "lambda_schedule": "learned_from_zero", "lambda_init": 0.5},
            "lambda_init changes nothing",
        ),
        ({"method": "dex", "share": 0}, "share"),
        ({"method": "dex", "heads": "entropie"}, "heads"),
        ({"method": "dex", "heads": []}, "heads.*at least 1 item"),
        ({"method": "dex", "heads": [1, 1]}, r"heads.*must be distinct, got \[1, 1\]"),
        ({"method": "dex", "annealing": 2.0}, "annealing"),
    ],
)
def test_settings_that_cannot_be_used_are_one_line(adapt: dict[str, Any], output: str) -> None:
    with pytest.raises(ConfigError, match=output) as refusal:
        configure(adapt, "runs.x.adapt")
    assert "\n" not in str(refusal.value) and "runs.x.adapt" in str(refusal.value)


ENTRY = """
  adapted:
    base: transformer
    init_from: transformer
    label: Adapted
    adapt: {adapt}
"""


@pytest.mark.parametrize(
    ("adapt", "changes", "output"),
    [
        ("{method: dexx}", "", "did you mean 'dex'"),
        ("{method: lora, rnak: 8}", "", "rnak"),
        ("{method: dex, heads: [0, 99]}", "", "heads: 99 is no head of a layer, which has 0 to"),
        ("{method: lora}", "init_from: null", "nothing to adapt"),
        ("{method: lora}", "base: diff\n    init_from: diff", "run diff is not a plain Llama"),
        (
            "{method: lora}",
            "overrides: {training: {save_checkpoints_at: [0.5]}}",
            "training.save_checkpoints_at",
        ),
    ],
)
def test_run_that_cannot_be_adapted_is_rejected_at_planning(
    config_folder: Path, adapt: str, changes: str, output: str
) -> None:
    runs = config_folder / "runs.yaml"
    entry = ENTRY.format(adapt=adapt)
    for line in filter(None, changes.split("\n    ")):
        key = line.partition(":")[0]
        lines = [old for old in entry.splitlines() if not old.startswith(f"    {key}:")]
        entry = "\n".join([*lines, f"    {line}", ""])
    runs.write_text(runs.read_text() + entry)
    with pytest.raises(ConfigError, match=output) as refusal:
        Plan.load(config_folder, {"scale": "smoke"})
    assert "\n" not in str(refusal.value) and "adapted" in str(refusal.value)
