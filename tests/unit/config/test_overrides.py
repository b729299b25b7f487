"""Settings from --config and --configfile, and their one-line errors."""

from pathlib import Path
from typing import Any

import pytest

from difftransformer.config.project import load_project, parse_settings
from difftransformer.config.yaml_files import as_settings
from difftransformer.errors import ConfigError, UserError
from difftransformer.planning.plan import Plan


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"scael": "tiny"}, "--config scael: unknown key; did you mean 'scale'?"),
        ({"scale": "tini"}, "unknown scale 'tini'; did you mean 'tiny'?"),
        ({"seeds": "x"}, "--config: seeds"),
        ({"tracking": {"url": "x"}}, "tracking.url: unknown key; did you mean 'uri'?"),
        ({"default_targets": ["table99"]}, "unknown artifact 'table99'"),
        (
            {"overrides": {"dif": {"training": {"lr": 0.002}}}},
            "--config: overrides: unknown run 'dif'; did you mean 'diff'?",
        ),
        (
            {"overrides": {"diff": {"training": {"lrr": 0.002}}}},
            "--config: overrides.diff: training.lrr: unknown key; did you mean 'lr'?",
        ),
        (
            {"overrides": {"diff": {"lr": 0.002}}},
            "--config: overrides.diff: lr: unknown key; did you mean 'training.lr'?",
        ),
        (
            {"overrides": {"diff": {"training": {"lr": "fast"}}}},
            "overrides.diff: training.lr: needs a number",
        ),
        ({"overrides": ["diff"]}, "--config: overrides: needs a mapping of keys, got ['diff']"),
        (
            {"overrides": {"stablelm_3b_4e1t": {"training": {"lr": 0.002}}}},
            "--config: overrides.stablelm_3b_4e1t: a pretrained model is not trained; remove it",
        ),
    ],
)
def test_a_wrong_override_is_one_line(
    overrides: dict[str, Any], message: str, config_folder: Path
) -> None:
    with pytest.raises(UserError) as caught:
        Plan.load(config_folder, overrides)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_settings_for_one_call_win_over_all_others(config_folder: Path) -> None:
    plan = Plan.load(config_folder, parse_settings(["overrides={diff: {training: {lr: 0.002}}}"]))
    assert plan.jobs.run("diff").training.lr == 0.002
    assert plan.jobs.run("transformer") == Plan.load(config_folder).jobs.run("transformer")


@pytest.mark.parametrize(("seeds", "expected"), [("3", [0, 2, 4]), ("[1,7]", [1, 7])])
def test_seeds_are_a_list_or_a_count_that_passes_over_exploratory_ones(
    seeds: str, expected: list[int], config_folder: Path
) -> None:
    scale = config_folder / "scales" / "tiny.yaml"
    lines = scale.read_text().splitlines()
    others = [line for line in lines if not line.startswith("exploratory_seeds")]
    scale.write_text("\n".join([*others, "exploratory_seeds: [1, 3]\n"]))
    artifacts = Plan.load(config_folder, parse_settings([f"seeds={seeds}"])).artifacts
    assert artifacts.seeds("table6") == artifacts.resolve("table6", "table").seeds == expected
    assert artifacts.resolve("table6", "table").exploratory_seeds == [1, 3]
    assert artifacts.exploratory() == ([1] if 1 in expected else [])


def test_an_artifact_has_the_seeds_of_its_scale_where_nobody_says(config_folder: Path) -> None:
    scale = config_folder / "scales" / "smoke.yaml"
    scale.write_text(scale.read_text() + "\nseeds: {table6: 3}\nexploratory_seeds: [0]\n")
    artifacts = Plan.load(config_folder, {"scale": "smoke"}).artifacts
    assert artifacts.seeds("table6") == [1, 2, 3]
    assert artifacts.seeds("table3") == [1]


def test_a_sweep_that_chooses_has_its_own_seeds_and_one_that_answers_those_of_a_table(
    repository: Path,
) -> None:
    artifacts = Plan.load(repository / "config", {"scale": "tiny", "seeds": 4}).artifacts
    assert artifacts.seeds("lr_sweep") == [1000]
    looked_at = artifacts.jobs.resolver.scale.exploratory_seeds
    assert artifacts.seeds("v2_stability") == artifacts.seeds("table6") == [24, 25, 26, 27]
    assert not set(looked_at) & set(artifacts.seeds("v2_stability"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "overrides: {diff: {}}\noverrides: {transformer: {}}\n",
            "line 2: key 'overrides' stands twice; remove one",
        ),
        ("seeds: [010, 1:30]\n", "line 1: YAML reads 010 as 8; write that, or use quotes"),
        ("seeds: [1, 1:30]\n", "line 1: YAML reads 1:30 as 90; write that, or use quotes"),
        ("seedss: 3\n", "seedss: unknown key; did you mean 'seeds'?"),
        (
            "overrides: {diff: {training: {lr: fast}}}\n",
            "overrides.diff: training.lr: needs a number",
        ),
        ("scale: '3'\nseeds: 'three'\n", "needs a list of seeds, or how many"),
        ("- scale\n", "must be a mapping of keys, got list"),
    ],
)
def test_a_file_of_settings_is_read_as_config_yaml_is(
    text: str, message: str, config_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        Plan.load(config_folder, files=[tmp_path / "mine.yaml"])
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert "mine.yaml: " in str(caught.value)


def test_later_files_and_the_command_line_win(config_folder: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("seeds: [5]\noverrides: {diff: {training: {lr: 0.001, weight_decay: 0.2}}}\n")
    second.write_text("seeds: [6]\noverrides: {diff: {training: {lr: 0.002}}}\n")
    plan = Plan.load(config_folder, {"seeds": [7]}, [first, second])
    assert plan.resolver.project.seeds == [7]
    training = plan.jobs.run("diff").training
    assert (training.lr, training.weight_decay) == (0.002, 0.2)
    both = {"diff": {"training": {"lr": 0.002, "weight_decay": 0.2}}}
    assert plan.call_settings == {
        "seeds": [7],
        "overrides": both,
    }  # what commands in the report repeat


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seeds=010"], "--config seeds: line 1: YAML reads 010 as 8"),
        (["seeds=1", "seeds=2"], "--config seeds: is given twice; remove one"),
        (["overrides={diff: {}, diff: {}}"], "--config overrides: line 1: key 'diff' stands twice"),
        (["overrides={diff: {training: {lr: 2e-3"], "--config overrides: "),
        (["scale"], "--config scale: takes key=value"),
    ],
)
def test_command_line_settings_are_parsed_strictly(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(words)
    assert message in str(caught.value)
    assert parse_settings(["seeds=3", "corpus=", "pretrained=./a=b"]) == {
        "seeds": 3, "corpus": None, "pretrained": "./a=b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("lambda_init: 0,3", "lambda_init: input should be 'exponential', or needs a number"),
        ("lamda_init: 0.3", "lamda_init: unknown key; did you mean 'lambda_init'?"),
        ("variant: nope", "variant: unknown variant 'nope'"),
    ],
)
def test_an_error_in_overridden_attention_names_the_settings_file(
    setting: str, message: str, config_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"overrides:\n  diff:\n    model:\n      attention:\n        {setting}\n")
    with pytest.raises(ConfigError) as caught:
        Plan.load(config_folder, files=[file])
    assert f"changed by {file}: overrides.diff: model.attention" in str(caught.value)
    assert message in str(caught.value)


def test_the_default_targets_have_fresh_seeds_that_a_larger_count_continues(
    repository: Path,
) -> None:
    artifacts = Plan.load(repository / "config", {"scale": "tiny"}).artifacts
    resolver = artifacts.jobs.resolver
    for name in resolver.project.default_targets:
        assert artifacts.seeds(name) == [30, 31, 32, 33, 34, 35]
        assert not {*artifacts.seeds(name)} & {*resolver.scale.exploratory_seeds}
    more = Plan.load(repository / "config", {"scale": "tiny", "seeds": 8}).artifacts
    assert more.seeds("table2") == [*range(30, 38)]
    assert more.seeds("table6") == [*range(24, 32)]


def test_a_listed_seed_that_is_exploratory_is_refused(config_folder: Path) -> None:
    scale = config_folder / "scales" / "smoke.yaml"
    scale.write_text(scale.read_text() + "\nseeds: {table6: [3, 0]}\nexploratory_seeds: [0]\n")
    with pytest.raises(ConfigError, match=r"smoke\.yaml: seeds\.table6: 0 is one of"):
        Plan.load(config_folder, {"scale": "smoke"})


def test_elsewhere_than_in_a_project_the_line_says_where_to_go(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.yaml: no such file: .*a checkout of the pro"):
        Plan.load(tmp_path / "config")


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ('benchmarks="{e}ms"', "{e}ms"),
        ("benchmarks='010'", "010"),
        ("benchmarks='[a]'", "[a]"),
        ("corpus='\"null\"'", '"null"'),
        ("overrides={diff: {label: 'no: 1'}}", {"diff": {"label": "no: 1"}}),
        ("benchmarks=it{e}ms", "it{e}ms"),
        ("seeds=[1,7]", [1, 7]),
    ],
)
def test_quoted_text_is_parsed_once(word: str, read: Any, config_folder: Path) -> None:
    settings = parse_settings([word])
    (key,) = settings
    assert settings[key] == read
    assert parse_settings(as_settings(settings)) == settings  # as `rerun` passes it on to Snakemake
    if key == "benchmarks":
        assert load_project(config_folder, settings)[0].benchmarks == read
