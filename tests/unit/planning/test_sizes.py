"""Runs whose size is matched to another run."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from difftransformer.config.resolve import ConfigResolver
from difftransformer.errors import ConfigError
from difftransformer.models.sizes import count_parameters, training_flops
from difftransformer.planning.plan import Plan
from difftransformer.planning.sizes import Sizes


def matched(sizes: Sizes) -> list[str]:
    return [name for name in sizes.resolver.runs if sizes.resolver.entry(name).match is not None]


def test_matched_runs_are_as_large_as_their_transformer(plan: Plan) -> None:
    sizes = Sizes(plan.resolver)
    names = matched(sizes)
    assert {"diff_v2", "recall_diff_v2", "transformer_1_5_heads", "tda"} <= set(names)
    for name in names:
        match, entry = sizes.match(name), sizes.resolver.entry(name).match
        assert match is not None
        assert entry is not None
        run = sizes.run(name).model
        assert run.ffn_dim == match.ffn_dim
        step = 3 * run.d_model * run.num_layers * 8
        assert match.measure == entry.by
        reference = sizes.resolver.run(entry.to, sizes.resolver.entry(name).recipe).model
        assert reference.d_model == run.d_model  # at the recipe of the matched run
        if entry.by == "parameters":
            assert count_parameters(run) == match.size
            assert abs(match.size - match.target) <= step / 2
        else:
            seq_len = sizes.run(name).training.seq_len
            assert match.size == training_flops(run, seq_len)
            assert match.target == training_flops(reference, seq_len)
            assert abs(match.size - match.target) <= 6 * step / 2


def changed(repository: Path, folder: Path, **runs: dict[str, Any]) -> Sizes:
    shutil.copytree(repository / "config", folder / "config")
    path = folder / "config" / "runs.yaml"
    content = yaml.safe_load(path.read_text())
    for name, entry in runs.items():
        content["runs"].setdefault(name, {"label": name}).update(entry)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return Sizes(ConfigResolver.load(folder / "config", {"scale": "smoke"}))


def test_a_run_may_drop_the_match_of_its_base(repository: Path, tmp_path: Path) -> None:
    sizes = changed(repository, tmp_path, free={"base": "diff_v2", "match": None})
    assert sizes.match("free") is None
    assert sizes.run("free").model.ffn_dim == sizes.run("transformer_gqa").model.ffn_dim


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({"to": "transfomer_gqa"}, "unknown run 'transfomer_gqa'; did you mean 'transformer_gqa'"),
        ({"to": "diff_v2_no_lambda"}, "runs form a circle"),
        ({"to": "stablelm_3b_4e1t"}, "runs.diff_v2.match.to: 'stablelm_3b_4e1t' is not trained"),
    ],
)
def test_a_wrong_match_is_one_line(
    repository: Path, tmp_path: Path, match: dict[str, Any], message: str
) -> None:
    sizes = changed(repository, tmp_path, diff_v2={"match": match})
    with pytest.raises(ConfigError) as caught:
        sizes.run("diff_v2")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
