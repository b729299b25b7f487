"""The plan: what every job gets, and what it would rerun for."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from difftransformer.config.artifact_slices import ArtifactSlice
from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import RunSlice
from difftransformer.errors import CheckpointError, ConfigError, DataError
from difftransformer.models.sizes import count_parameters
from difftransformer.planning.artifacts import Artifacts
from difftransformer.planning.documentation import documentation
from difftransformer.planning.plan import Plan, paper_contents

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


def test_every_scale_resolves_every_run(plan: Plan) -> None:
    for name in plan.catalogue.runs:
        if plan.jobs.trained(name):
            assert plan.jobs.run(name).run == name


def test_rows_of_table_6_differ_in_norm_gains_and_lambda_vectors_alone(plan: Plan) -> None:
    def matrices(name: str) -> int:
        model = plan.jobs.run(name).model
        attention = model.attention
        differential = attention["variant"] == "diff_v1"
        width = attention["head_dim"] * (2 if differential else 1)
        gains = width if attention["norm"] else 0
        lambdas = 4 * attention["head_dim"] if differential else 0
        return count_parameters(model) - model.num_layers * (gains + lambdas)

    assert len({matrices(name) for name in TABLE_6}) == 1


def test_the_rows_differ_in_nothing_but_attention_and_learning_rate(plan: Plan) -> None:
    def rest(slice: RunSlice) -> dict:
        return slice.model_dump(exclude={"run": True, "model": {"attention"}, "training": {"lr"}})

    first, *others = (plan.jobs.run(name) for name in TABLE_6)
    assert all(rest(other) == rest(first) for other in others)


def test_paper_scale_is_table_6_as_printed(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    found = {
        name: (attention["num_heads"], attention["head_dim"])
        for name in TABLE_6
        for attention in [plan.jobs.run(name).model.attention]
    }
    assert found == TABLE_6
    training = plan.jobs.run("diff").training
    assert training.total_steps * training.batch_size * training.seq_len == pytest.approx(
        1e10, rel=0.05
    )
    assert plan.jobs.run("diff").model.vocab_size == 100288


@pytest.mark.parametrize("size", ["830M", "1.4B", "2.8B", "6.8B", "13.1B", "3B"])
def test_parameter_counts_on_the_meta_device(size: str, repository: Path) -> None:
    """Built without memory; every disagreement with the paper is explained in papers.yaml."""
    plan = Plan.load(repository / "config", {"scale": "paper"})
    setup = "section_3_1" if size == "3B" else f"size_{size.lower().replace('.', '_')}"
    run = plan.catalogue.runs["diff"].model_copy(update={"base": "transformer", "setup": setup})
    plan.catalogue.runs["sized"] = run
    counted = count_parameters(plan.jobs.run("sized").model)
    paper = plan.catalogue.papers.sizes[size]
    assert counted == pytest.approx(paper.counted_parameters, rel=0.003)
    if abs(counted / paper.stated_parameters - 1) > 0.02:
        assert len(paper.note) > 40


def test_sweep_runs_differ_in_the_learning_rate_alone(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    rates = plan.catalogue.scale.sweeps["lr_sweep"].rates()["diff"]
    for index, rate in enumerate(rates):
        swept = plan.jobs.run(f"sweep_diff_{index}")
        assert swept.training.lr == rate
        base = plan.jobs.run("diff").training.model_copy(update={"lr": rate})
        assert swept.training == base


def test_slices_are_files_named_by_their_content(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    first = plan.jobs.run_slice("diff")
    again = Plan.load(repository / "config", {"scale": "smoke"}).jobs.run_slice("diff")
    assert first == again
    assert plan.jobs.run_slice("transformer") != first
    assert RunSlice.model_validate_json(Path(first).read_bytes()) == plan.jobs.run("diff")


def test_code_of_a_run_is_that_of_its_variant_alone(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    assert plan.jobs.code("pretrain", "diff") == plan.jobs.code("pretrain", "diff_no_groupnorm")
    assert plan.jobs.code("pretrain", "diff") != plan.jobs.code("pretrain", "transformer")


def test_generated_documentation_is_current(repository: Path) -> None:
    for path, text in documentation(repository / "config").items():
        assert path.is_file() and path.read_text() == text, (
            f"{path.relative_to(repository)} is stale: run `make docs`"
        )


def test_a_model_from_elsewhere_is_evaluated_once_and_trained_by_nothing(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "gpu", "seeds": 3})
    found = [name for name in plan.artifacts.results("table1") if "open_llama" in name]
    assert found == [
        plan.jobs.layout.evaluation("language_understanding_0shot", "open_llama_3b_v2", 0)
    ]
    assert (
        plan.jobs.manifest("open_llama_3b_v2")
        == plan.jobs.training_file("open_llama_3b_v2", 0)
        == []
    )
    assert plan.jobs.gpus("open_llama_3b_v2", "language_understanding_0shot") == 1
    row = (
        ArtifactSlice.model_validate_json(
            Path(plan.artifacts.slice_file("table1", "table")).read_text()
        )
        .sections[0]
        .rows[0]
    )
    assert row.pretrained and row.facts == {}


def test_small_scales_train_nothing_new_for_tables_1_and_8(repository: Path) -> None:
    for scale in ("smoke", "tiny"):
        plan = Plan.load(repository / "config", {"scale": scale})
        for table in ("table1", "table8"):
            assert set(plan.artifacts.known[table].runs()) == {"transformer", "diff"}
    paper = Plan.load(repository / "config", {"scale": "paper"})
    assert paper.jobs.run("diff_3b_1t").training.total_steps == 250_000
    assert paper.artifacts.known["table8"].runs() == ["transformer_3b", "diff_3b"]


def add_below(file: Path, line: str, new: str) -> None:
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, line + new, 1))


def test_a_row_from_a_folder_depends_on_its_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(repository / "config", tmp_path / "config")
    runs = tmp_path / "config" / "runs.yaml"
    runs.write_text(runs.read_text() + "  mine: {label: Mine, pretrained: ./mine}\n")
    artifacts = tmp_path / "config" / "artifacts"
    mine = "      - {run: mine}\n"
    add_below(artifacts / "table1.yaml", "- {run: diff_3b_1t}\n", mine)
    with pytest.raises(CheckpointError, match="mine: no such model folder"):
        Plan.load(tmp_path / "config", {"scale": "smoke"})
    (tmp_path / "mine").mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / "mine" / name).write_text("{}")
    plan = Plan.load(tmp_path / "config", {"scale": "smoke"})
    names = ["mine/config.json", "mine/model.safetensors", "mine/tokenizer.json"]
    assert plan.jobs.weights("mine", 0) == names
    add_below(artifacts / "table6.yaml", "- {run: diff}\n", mine)
    with pytest.raises(ConfigError, match="'mine' is a model from elsewhere, which suite 'valid"):
        Plan.load(tmp_path / "config", {"scale": "smoke"})


def test_benchmarks_of_the_project_win_over_the_scale(repository: Path, tmp_path: Path) -> None:
    suite = "language_understanding_0shot"
    plan = Plan.load(repository / "config", {"scale": "smoke"})
    assert all("/items/" in name for name in plan.jobs.benchmark_files(suite))
    hub = Plan.load(repository / "config", {"scale": "smoke", "benchmarks": "hub"})
    assert hub.jobs.benchmark_files(suite) == []
    with pytest.raises(DataError, match=r"benchmarks: .*nowhere: no such folder"):
        Plan.load(repository / "config", {"benchmarks": str(tmp_path / "nowhere")})


def test_chosen_learning_rates_come_from_the_grid(repository: Path) -> None:
    """So that the table of the sweep can show them."""
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    scale = plan.catalogue.scale
    swept = scale.sweeps["lr_sweep"].rates() | scale.sweeps["lr_sweep_v2"].rates()
    for run, rate in scale.learning_rates.items():
        assert rate in swept[run.removesuffix("_equal_flops")], run
    for run, rates in scale.sweeps["lr_sweep_sizes"].rates().items():
        assert plan.jobs.run(run).training.lr in rates, run


def test_models_of_text_stand_in_where_prompts_are_english(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "gpu"})
    assert plan.artifacts.known["table2"].runs() == [
        "transformer", "transformer_halved_heads_groupnorm", "diff",
    ]  # fmt: skip
    slice = ArtifactSlice.model_validate_json(
        Path(plan.artifacts.slice_file("table2", "table")).read_bytes()
    )
    assert slice.sections[0].rows[2].against == "transformer"
    assert {(c.row, c.against) for c in slice.claims.values()} == {
        ("diff", "transformer"), ("diff", "transformer_halved_heads_groupnorm"),
    }  # fmt: skip
    assert slice.paper is not None and slice.paper.rows["diff"].values["n6_r2"] == 0.85
    tiny = Plan.load(repository / "config", {"scale": "tiny"})
    assert tiny.artifacts.known["table2"].runs()[0] == "recall_transformer"


def test_every_table_and_figure_of_the_papers_has_a_status(plan: Plan) -> None:
    paper = plan.catalogue.papers.papers["diff_v1"]
    names = [item.item for item in paper.items]
    tables, figures = ([n for n in names if n.startswith(kind)] for kind in ("Table", "Figure"))
    assert tables == [f"Table {i}" for i in range(1, 11)]
    assert {name.rstrip("ab") for name in figures} == {f"Figure {i}" for i in range(1, 12)}
    for paper_status in paper_contents(plan.artifacts, ["table1"]):
        for item in paper_status.items:
            assert item.states == ["nothing to measure"] or item.artifact in plan.artifacts.known
            if item.artifact == "table1":
                assert item.states[0] == "built here"
                assert ("needs scale" in item.states) == (plan.jobs.scale in ("smoke", "tiny"))
            elif item.artifact:
                assert item.states == ["not in this report"]
                assert f"snakemake {item.artifact} --config scale={plan.jobs.scale}" in item.words


def test_a_paper_is_a_target_and_a_report(repository: Path) -> None:
    plan = Plan.load(repository / "config")
    printed = plan.groups["diff_v1"]
    assert {f"table{n}" for n in range(1, 11)} < set(printed) < set(plan.groups["all"])
    assert plan.asked(["diff_v1", "v2_loss", "table6"]) == [*printed, "v2_loss"]
    assert plan.asked([]) == plan.groups["headline"] == plan.asked(["report", "results/x.svg"])
    assert plan.groups["sweeps"] == ["lr_sweep", "lr_sweep_sizes", "lr_sweep_v2"]
    assert sorted(plan.groups["all"] + plan.groups["sweeps"]) == sorted(plan.artifacts.known)


def test_a_table_without_a_language_model_as_judge_says_so(repository: Path) -> None:
    plan = Plan.load(repository / "config")
    (paper,) = paper_contents(plan.artifacts, ["table4", "table5"])
    states = {item.artifact: item.states for item in paper.items}
    assert states["table4"] == ["built here", "needs a judge"]
    assert states["table5"] == ["built here"]


def test_what_a_scale_lacks_and_leaves_out_is_told_apart(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    shown = ["table1", "table4", "table8"]
    (paper,) = paper_contents(_without_timings(plan.catalogue), shown)
    found = {item.artifact: (item.states, item.words) for item in paper.items}
    assert found["table7"] == (["needs scale"], "Scale tiny has no setting for it.")
    states, words = found["table1"]
    assert states == ["built here", "needs scale"]
    rows = plan.catalogue.runs
    assert (
        words
        == "Without "
        + ", ".join(
            rows[name].label
            for name in ("open_llama_3b_v2", "stablelm_base_alpha_3b_v2", "stablelm_3b_4e1t")
        )
        + "."
    )
    assert found["table8"] == (["built here"], "")  # other models stand in, none is left out
    asked = replace(
        plan.catalogue,
        project=plan.catalogue.project.model_copy(update={"judge": ["lexical", "endpoint"]}),
    )
    (paper,) = paper_contents(Plan(asked).artifacts, ["table4"])
    assert next(item.states for item in paper.items if item.artifact == "table4") == ["built here"]


def test_tables_of_settings_train_nothing(plan: Plan) -> None:
    assert plan.artifacts.results("table9") == plan.artifacts.results("table10") == []


def test_the_papers_scale_has_the_papers_settings(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    for name in ("table9", "table10"):
        slice = ArtifactSlice.model_validate_json(
            Path(plan.artifacts.slice_file(name, "table")).read_bytes()
        )
        assert slice.paper is not None
        for row in (row for part in slice.sections for row in part.rows):
            published = slice.paper.rows[row.run].values
            for key, value in published.items():
                if key == "heads" and row.run.endswith("830m"):
                    continue  # as printed they do not fit the hidden size; see the table's notes
                assert row.facts[key] == pytest.approx(value, rel=0.06), (row.run, key)


def test_a_suite_that_repeats_another_has_its_inputs_and_its_code(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "tiny"})
    assert plan.jobs.ngrams_file("quantised_loss", "diff") == plan.jobs.ngrams_file(
        "validation_slices", "diff"
    )
    assert plan.jobs.ngrams_file("quantised_accuracy", "recall_diff") == []
    items = Plan.load(repository / "config", {"scale": "gpu", "benchmarks": "builtin"})
    assert items.jobs.benchmark_files("quantised_accuracy") == items.jobs.benchmark_files(
        "hellaswag_0shot"
    )
    assert items.jobs.gpus("diff", "quantised_accuracy") == 1
    codes = {suite: plan.jobs.code("evaluate", suite, "diff") for suite in plan.catalogue.suites}
    assert len({codes[name] for name in ("recall", "quantised_accuracy", "quantised_loss")}) == 3
    with pytest.raises(ConfigError, match=r"quantised_loss on run diff .* longer than"):
        longer = _with_suite(plan.catalogue, "validation_slices", {"seq_len": 4096})
        Plan(longer).jobs.check_evaluation("quantised_loss", "diff", "here")


def _without_timings(catalogue: Catalogue) -> Artifacts:
    untimed = catalogue.scale.model_copy(update={"timings": {}})
    return Plan(replace(catalogue, scale=untimed)).artifacts


def _with_suite(catalogue: Catalogue, name: str, changes: dict[str, object]) -> Catalogue:
    scale = catalogue.scale
    suites = scale.suites | {name: scale.suites.get(name, {}) | changes}
    return replace(catalogue, scale=scale.model_copy(update={"suites": suites}))


def test_a_set_that_a_folder_lacks_is_a_missing_input_of_its_suite_alone(
    repository: Path, tmp_path: Path
) -> None:
    items = tmp_path / "piqa" / "validation.jsonl"
    items.parent.mkdir()
    items.write_text("{}\n")
    plan = Plan.load(repository / "config", {"benchmarks": str(tmp_path)})
    missing = plan.jobs.benchmark_files("mathematics")
    assert missing == [str(tmp_path / "gsm8k" / "test.jsonl")]
