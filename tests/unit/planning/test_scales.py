"""The repository's own scales: their runs, model sizes and learning rates."""

import re
from pathlib import Path

import pytest

from difftransformer.config import scales
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.run import RunConfig
from difftransformer.models.sizes import count_parameters
from difftransformer.planning.plan import Plan

TABLE_6 = {
    # arXiv 2410.05258, table 6: heads and head width of every row
    "transformer": (16, 128),
    "transformer_halved_heads": (8, 256),
    "transformer_halved_heads_groupnorm": (8, 256),
    "diff": (8, 128),
    "diff_no_groupnorm": (8, 128),
    "diff_lambda_0_8": (8, 128),
    "diff_lambda_0_5": (8, 128),
}


CONTROLS = ("diff_lambda_0", "transformer_groupnorm", "transformer_halved_heads_gain")


def test_every_scale_resolves_every_run(plan: Plan) -> None:
    for name in plan.resolver.runs:
        if plan.jobs.trained(name):
            assert plan.jobs.run(name).run == name


def test_scales_and_recipes_state_their_parameter_counts(plan: Plan) -> None:
    """By a count of the Transformer, in the scale's description and the recipes' names."""
    match = re.search(r"About (\d+)M parameters", plan.resolver.scale.description)
    stated = {"transformer": float(match[1])} if match else {}
    for run, recipe in scales.members(
        plan.resolver.runs, "transformer", plan.resolver.scale.size_grids["parameters"]
    ).items():
        if size := re.fullmatch(r"size_([\d_]+)(m|b)", recipe):
            stated[run] = float(size[1].replace("_", ".")) * {"m": 1, "b": 1000}[size[2]]
    assert bool(match) == (plan.jobs.scale in ("small", "gpu"))
    for run, millions in stated.items():
        counted = count_parameters(plan.jobs.run(run).model) / 1e6
        assert counted == pytest.approx(millions, rel=0.025, abs=0.5), run


def test_rows_of_table_6_differ_only_in_norm_gains_and_lambda_vectors(plan: Plan) -> None:
    def matrices(name: str) -> int:
        model = plan.jobs.run(name).model
        attention = model.attention
        differential = attention.variant == "diff_v1"
        width = attention.head_dim * (2 if differential else 1)
        gains = width * (attention.norm + (getattr(attention, "gain", None) is not None))
        learned = differential and attention.lambda_fixed is None
        lambdas = 4 * attention.head_dim if learned else 0
        return count_parameters(model) - model.num_layers * (gains + lambdas)

    assert len({matrices(name) for name in (*TABLE_6, *CONTROLS)}) == 1


def test_rows_differ_only_in_attention_and_learning_rate(plan: Plan) -> None:
    def rest(slice: RunConfig) -> dict:
        differ = {"lr", "save_checkpoints_at"}  # the second changes no step
        return slice.model_dump(exclude={"run": True, "model": {"attention"}, "training": differ})

    first, *others = (plan.jobs.run(name) for name in (*TABLE_6, *CONTROLS))
    assert all(rest(other) == rest(first) for other in others)
    assert {plan.jobs.run(name).training.lr for name in CONTROLS} == {first.training.lr}


def test_paper_scale_is_table_6_as_printed(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    heads = {
        name: (attention.num_heads, attention.head_dim)
        for name in TABLE_6
        for attention in [plan.jobs.run(name).model.attention]
    }
    assert heads == TABLE_6
    training = plan.jobs.run("diff").training
    assert training.total_steps * training.batch_size * training.seq_len == pytest.approx(
        1e10, rel=0.05
    )
    assert plan.jobs.run("diff").model.vocab_size == 100288


@pytest.mark.parametrize("size", ["830M", "1.4B", "2.8B", "6.8B", "13.1B", "3B"])
def test_parameter_counts_on_the_meta_device(size: str, repository: Path) -> None:
    """Built without memory; every disagreement with the paper is explained in papers.yaml."""
    plan = Plan.load(repository / "config", {"scale": "paper"})
    recipe = "section_3_1" if size == "3B" else f"size_{size.lower().replace('.', '_')}"
    run = plan.resolver.runs["diff"].model_copy(update={"base": "transformer", "recipe": recipe})
    plan.resolver.runs["sized"] = run
    counted = count_parameters(plan.jobs.run("sized").model)
    paper = plan.resolver.papers.sizes[size]
    assert counted == pytest.approx(paper.counted_parameters, rel=0.003)
    if abs(counted / paper.stated_parameters - 1) > 0.02:
        assert len(paper.note) > 40


def test_small_has_a_training_of_the_central_rows_that_fits_ten_minutes(repository: Path) -> None:
    """34M parameters with the tied embedding, 64K-token batches, 50M tokens, three rates."""
    plan = Plan.load(repository / "config", {"scale": "small"})
    central = ["transformer", "transformer_halved_heads_groupnorm", "diff", "diff_lambda_0"]
    for name in central:
        run = plan.jobs.run(name)
        assert count_parameters(run.model) == pytest.approx(34e6, rel=0.01)
        assert run.training.tokens_per_step == 2**16
        assert run.training.total_steps * 2**16 == pytest.approx(50e6, rel=0.01)
        assert run.training.checkpoint_every is not None
        assert run.training.checkpoint_every * 10 < run.training.total_steps
    sweep = plan.resolver.scale.sweeps["lr_sweep"]
    assert sweep.seeds == [1000]
    assert {len(sweep.rates()[name]) for task in ("", "recall_") for name in central
            for name in [task + name]} == {3}  # fmt: skip
    files = ConfigResolver.load(repository / "config", {"scale": "small", "corpus": "local_files"})
    assert files.run("diff").dataset == "local_files"
    assert files.run("diff").model == plan.resolver.run("diff").model


def test_sweep_runs_differ_only_in_the_learning_rate(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    rates = plan.resolver.scale.sweeps["lr_sweep"].rates()["diff"]
    for index, rate in enumerate(rates):
        swept = plan.jobs.run(f"sweep_diff_{index}")
        assert swept.training.lr == rate
        own = {"lr": rate, "save_checkpoints_at": []}
        base = plan.jobs.run("diff").training.model_copy(update=own)
        assert swept.training == base


def test_chosen_learning_rates_come_from_the_grid(plan: Plan) -> None:
    """So that the table of the sweep can show them; the rows of Table 6 share one grid."""
    scale = plan.resolver.scale
    for sweep in scale.sweeps.values():
        for run, rates in sweep.rates().items():
            assert plan.jobs.run(run).training.lr in rates, run
    if plan.jobs.scale in ("smoke", "paper"):
        assert "lr_sweep" not in scale.sweeps
        return
    swept = scale.sweeps["lr_sweep"].rates()
    assert {"transformer", "diff", "recall_transformer", "recall_diff"} < set(swept)
    swept = {run: rates for sweep in scale.sweeps.values() for run, rates in sweep.rates().items()}
    for run, rate in scale.learning_rates.items():
        tried = run
        while tried not in swept:  # a run that is not swept takes the rate of its base
            base = plan.resolver.runs[tried].base
            assert base is not None, run
            tried = base
        assert rate in swept[tried], run


def test_a_new_run_has_the_chosen_rate_of_its_base_at_the_same_recipe(config_folder: Path) -> None:
    """Else a reader's variant would train at another rate than the row that it is compared with."""
    path = config_folder / "runs.yaml"
    mine = """runs:
  mine: {label: Mine, base: diff}
  mine_again: {label: Mine, base: mine}
  mine_elsewhere: {label: Mine, base: diff, recipe: recall}
  mine_slower: {label: Mine, base: diff, overrides: {training: {lr: 1.0e-4}}}
  mine_adapted: {label: Mine, base: adapted_full}
  mine_adapted_otherwise: {label: Mine, base: mine_adapted, adapt: {method: lora}}
"""
    path.write_text(path.read_text().replace("runs:\n", mine, 1))
    scale = config_folder / "scales" / "tiny.yaml"
    tuned = "learning_rates:\n  adapted_full: 1.0e-5\n"
    scale.write_text(scale.read_text().replace("learning_rates:\n", tuned, 1))
    resolver = Plan.load(config_folder, {"scale": "tiny"}).resolver
    chosen = resolver.scale.learning_rates["diff"]
    rates = {run: resolver.run(run).training.lr for run in resolver.runs if "mine" in run}
    recipe = resolver.scale.recipes["recall"].training["lr"]
    assert recipe != chosen
    adapted = resolver.scale.recipes["adaptation"].training["lr"]
    assert rates == {
        "mine": chosen, "mine_again": chosen, "mine_elsewhere": recipe, "mine_slower": 1e-4,
        "mine_adapted": 1e-5, "mine_adapted_otherwise": adapted,
    }  # fmt: skip


def test_only_runs_that_request_intermediate_checkpoints_save_them(config_folder: Path) -> None:
    path = config_folder / "runs.yaml"
    mine = """runs:
  mine: {label: Mine, base: diff}
  mine_kept: {label: Mine, base: mine, save_checkpoints_at: [0.7, 0.5]}
  math_kept: {label: Mine, base: math_diff, save_checkpoints_at: [0.25, 0.5]}
"""
    path.write_text(path.read_text().replace("runs:\n", mine, 1))
    resolver = Plan.load(config_folder, {"scale": "tiny"}).resolver
    runs = ("diff", "mine", "mine_kept", "math_diff", "math_kept")
    checkpoints = {run: resolver.run(run).training.save_checkpoints_at for run in runs}
    assert checkpoints["diff"]
    assert (checkpoints["mine"], checkpoints["mine_kept"]) == ([], [0.5, 0.7])
    expected = sorted({*checkpoints["math_diff"], 0.25, 0.5})
    assert checkpoints["math_kept"] == expected != checkpoints["math_diff"]


MEET = {"tiny": {("transformer_halved_heads", "transformer_size_128")}}
"""Whose sizes happen to meet, an ablation's and a size_grid's: the head of a workflow says so."""


def test_nothing_is_trained_twice_under_two_names(plan: Plan) -> None:
    """Whichever artifacts are built; weights that are kept on the way change no step."""
    twins = {tuple(sorted(runs)) for runs in plan.equal_trainings([*plan.artifacts.available])}
    assert twins == MEET.get(plan.jobs.scale, set())
