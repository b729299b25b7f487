"""What --config sets for one call, and what is wrong with it in one line."""

from pathlib import Path
from typing import Any

import pytest

from difftransformer.errors import UserError
from difftransformer.planning.plan import Plan


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"scael": "tiny"}, "--config scael: unknown key; did you mean 'scale'?"),
        ({"scale": "tini"}, "unknown scale 'tini'; did you mean 'tiny'?"),
        ({"seeds": "x"}, "--config: seeds"),
        ({"tracking": {"url": "x"}}, "tracking.url: unknown key; did you mean 'uri'?"),
        ({"headline": ["table99"]}, "unknown artifact 'table99'"),
        (
            {"set": {"dif": {"training": {"lr": 0.002}}}},
            "--config: set: unknown run 'dif'; did you mean 'diff'?",
        ),
        (
            {"set": "{diff: {training: {lrr: 0.002}}}"},
            "--config: set.diff: training.lrr: unknown key; did you mean 'lr'?",
        ),
        (
            {"set": {"diff": {"lr": 0.002}}},
            "--config: set.diff: lr: unknown key; did you mean 'training.lr'?",
        ),
        ({"set": {"diff": {"training": {"lr": "fast"}}}}, "set.diff: training.lr: needs a number"),
        ({"set": ["diff"]}, "--config: set: needs a mapping of keys, got ['diff']"),
        ({"set": "{diff: {training: {lr: 2e-3"}, "--config set: "),
        (
            {"set": {"stablelm_3b_4e1t": {"training": {"lr": 0.002}}}},
            "--config: set.stablelm_3b_4e1t: a pretrained model is not trained; remove it",
        ),
    ],
)
def test_a_wrong_override_is_one_line(
    overrides: dict[str, Any], said: str, config_folder: Path
) -> None:
    with pytest.raises(UserError) as caught:
        Plan.load(config_folder, overrides)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_settings_for_one_call_win_over_all_others(config_folder: Path) -> None:
    plan = Plan.load(config_folder, {"set": "{diff: {training: {lr: 0.002}}}"})
    assert plan.jobs.run("diff").training.lr == 0.002
    assert plan.jobs.run("transformer") == Plan.load(config_folder).jobs.run("transformer")


@pytest.mark.parametrize(
    ("given", "meant"), [(3, [0, 1, 2]), ("3", [0, 1, 2]), ([4, 7], [4, 7]), ("[4,7]", [4, 7])]
)
def test_seeds_are_a_list_or_a_count(given: Any, meant: list[int], config_folder: Path) -> None:
    assert Plan.load(config_folder, {"seeds": given}).jobs.seeds == meant
