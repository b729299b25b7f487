"""Size grids: every model of a section at every recipe, none trained twice."""

from pathlib import Path

import pytest
import yaml

from difftransformer.config.project import RunEntry
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.scales import inherited, members
from difftransformer.errors import ConfigError
from difftransformer.models.sizes import count_parameters
from difftransformer.planning.plan import Plan

RUNS = {
    "a": RunEntry(label="A", recipe="middle"),
    "b": RunEntry(label="B", base="a"),
    "c": RunEntry(label="C", base="b", recipe="large"),
}


def test_a_run_at_its_own_setup_is_itself() -> None:
    runs = inherited(RUNS, "here")
    assert members(runs, "b", ["small", "middle", "large"]) == {
        "b_small": "small", "b": "middle", "c": "large",
    }  # fmt: skip
    assert list(members(runs, "c", ["middle", "large"])) == ["c_middle", "c"]
    changed = RunEntry(label="C", base="b", recipe="large", overrides={"training": {"lr": 1.0}})
    assert list(members(runs | {"c": changed}, "b", ["large"])) == ["b_large"]


@pytest.mark.parametrize("scale", ["smoke", "tiny", "small", "gpu", "paper"])
def test_sizes_ascend_and_differ_only_in_attention(scale: str, repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": scale})
    pairs = list(
        zip(*(plan.resolver.members(r, "parameters") for r in ("transformer", "diff")), strict=True)
    )
    assert len(pairs) >= 3
    counts = [[count_parameters(plan.jobs.run(run).model) for run in pair] for pair in pairs]
    assert counts == sorted(counts)
    for pair, (transformer, diff) in zip(pairs, counts, strict=True):
        assert transformer == pytest.approx(diff, rel=0.01)  # gains and lambda vectors
        first, second = (plan.jobs.run(run) for run in pair)
        assert first.training == second.training and first.dataset == second.dataset
        for slice in (first, second):
            attention = slice.model.attention
            maps = 2 if attention.variant == "diff_v1" else 1
            assert attention.num_heads * attention.head_dim * maps == slice.model.d_model


def test_paper_scale_is_table_10(repository: Path) -> None:

    plan = Plan.load(repository / "config", {"scale": "paper"})
    published = list(plan.resolver.papers.sizes.values())[:5]
    runs = plan.resolver.members("diff", "parameters")
    for run, size in zip(runs, published, strict=True):
        slice = plan.jobs.run(run)
        assert (slice.model.d_model, slice.model.num_layers) == (size.d_model, size.num_layers)
        assert slice.training.lr == size.lr
        assert count_parameters(slice.model) == pytest.approx(size.counted_parameters, rel=0.003)
    (longest,) = plan.resolver.members("diff", "tokens")
    training = plan.jobs.run(longest).training
    assert training.total_steps == 90_000
    assert training.total_steps * training.tokens_per_step == pytest.approx(3.6e11, rel=0.06)


def test_another_row_brings_its_sizes(config_folder: Path) -> None:
    path = config_folder / "artifacts" / "figure3a.yaml"
    content = yaml.safe_load(path.read_text())
    content["sections"][0]["rows"].append({"run": "diff_no_groupnorm"})
    path.write_text(yaml.safe_dump(content))
    plan = Plan.load(config_folder, {"scale": "tiny"})
    added = [run for run in plan.artifacts.runs("figure3a") if run.startswith("diff_no_groupnorm")]
    assert len(added) == 5 and "diff_no_groupnorm_size_128" in added
    assert plan.jobs.run("diff_no_groupnorm_size_64").model.attention.norm is False
    assert "diff_no_groupnorm_size_64" not in plan.artifacts.runs("figure3b")


def test_an_edit_of_one_size_changes_the_jobs_of_that_size_alone(
    config_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(config_folder, {"scale": "tiny"})
    runs = [*plan.artifacts.runs("figure3a"), "diff_more_tokens"]
    before = {run: plan.jobs.write("run", plan.jobs.run(run)) for run in runs}
    path = config_folder / "scales" / "tiny.yaml"
    old = "d_model: 64, ffn_dim: 192"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, "d_model: 64, ffn_dim: 256"))
    plan = Plan.load(config_folder, {"scale": "tiny"})
    changed = {run for run in runs if plan.jobs.write("run", plan.jobs.run(run)) != before[run]}
    assert changed == {"transformer_size_64", "diff_size_64"}


def test_results_are_those_of_every_size(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny", "seeds": [7, 8]})
    results = plan.artifacts.results("figure3a")
    assert len(results) == len(set(results)) == 5 * 2 * 2 * 2
    assert "results/tiny/evaluations/validation_slices/diff_size_32/8.json" in results
    assert plan.artifacts.table_histories("figure3a") == []
    assert plan.artifacts.table_histories("figure3b") == [
        f"results/tiny/runs/{run}_more_tokens/{seed}/history.csv"
        for run in ("transformer", "diff")
        for seed in (7, 8)
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("artifacts/figure3b.yaml", "size_grid: tokens", "size_grid: token",
         "size grid 'token'; did you mean 'tok"),
        ("scales/tiny.yaml", "tokens: [more_tokens]", "tokens: [more_token]",
         "size_grids.tokens: unknown recipe 'more_token'; did you mean 'more_tokens'"),
        ("scales/tiny.yaml", "parameters: [size_32, size_64, size_96, size_128, size_192]",
         "parameters: [ablation]", "size_grids.parameters: a curve needs at least two sizes"),
        ("artifacts/figure3b.yaml", "size_grid: tokens\n", "\n", "size_grid: .* scaling needs one"),
        ("artifacts/figure3b.yaml", "compare_at: 0.44", "compare_at: 1.4",
         r"sections\[0\]\.options: compare_at: .*less than or equal"),
        ("artifacts/figure3b.yaml", "by: tokens", "by: token",
         r"options: by: .*'size' or 'tokens', got 'token'"),
        ("artifacts/figure3b.yaml", "evaluation: scaling", "evaluation: validation_slices",
         r"options: by: unknown key"),
        ("artifacts/figure3b.yaml", "by: tokens", "by: size", "reads exactly one"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    file: str, old: str, new: str, message: str, config_folder: Path
) -> None:
    path = config_folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=message) as error:
        ConfigResolver.load(config_folder, {"scale": "tiny"})
    assert "\n" not in str(error.value)
