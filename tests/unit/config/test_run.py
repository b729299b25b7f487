"""Settings that decide the results of a run."""

from typing import Any

import pytest
from tiny_training import make_run_config


@pytest.mark.parametrize(
    "changed",
    [{"world_size": 2}, {"activation_checkpointing": "layer"}, {"checkpoint_every": 7}],
    ids=lambda changed: next(iter(changed)),
)
def test_how_a_run_is_computed_and_kept_is_not_decisive(changed: dict[str, Any]) -> None:
    plain, other = make_run_config(), make_run_config(**changed)
    assert other != plain
    assert other.decisive() == plain.decisive()


def test_what_is_trained_is_decisive() -> None:
    assert make_run_config(lr=0.5).decisive() != make_run_config().decisive()
