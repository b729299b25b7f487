"""`rerun` of one ablation: the forced jobs and the build they belong to."""

import sys
from pathlib import Path
from unittest.mock import Mock

from command_line import call, table_with

from difftransformer.planning.plan import Plan


def forced(started: Mock) -> tuple[list[str], list[str]]:
    """Targets that snakemake is started with, and the files that it is to make again."""
    program, words = started.call_args.args
    assert program == words[0] == sys.executable and words[1:3] == ["-m", "snakemake"]
    force = words.index("--forcerun")
    settings = words.index("--config") if "--config" in words else None
    return words[3 : words.index("--cores")], words[force + 1 : settings]


def test_rerun_forces_the_trainings_of_an_ablation_alone(checkout: Path, started: Mock) -> None:
    words = ("rerun", "ablation_head_count", "--seeds", "2", "--cores", "3", "--dry-run")
    assert call(*words).exit_code == 0
    targets, files = forced(started)
    eligible = (
        Plan.load(checkout / "config", {"seeds": 2}).artifacts.resolve("table6", "table").seeds
    )
    assert targets == ["ablation_head_count"]
    assert files == [
        f"results/tiny/runs/{run}/{seed}/training.json"
        for run in ("transformer_halved_heads", "recall_transformer_halved_heads")
        for seed in eligible
    ]
    command = started.call_args.args[1]
    assert command[4:7] == ["--cores", "3", "--dry-run"]
    assert command[-2:] == ["--config", "seeds=2"]


def test_rerun_is_of_the_build_that_settings_say(checkout: Path, started: Mock) -> None:
    words = (
        "rerun",
        "ablation_group_norm",
        "--seeds",
        "[4]",
        "--workflow-profile",
        "profiles/slurm",
    )
    assert call(*words, "--config", "results=elsewhere", "seeds=[7]").exit_code == 0
    (forced_file, *_) = forced(started)[1]
    assert forced_file.startswith("elsewhere/tiny/runs/") and "/7/" in forced_file
    command = started.call_args.args[1]
    assert command[command.index("--workflow-profile") + 1] == "profiles/slurm"
    assert command[command.index("--config") + 1 :] == ["seeds=[7]", "results=elsewhere"]
    ended = call("rerun", "ablation_group_norm", "--config", "results")
    assert ended.exit_code == 2 and "--config results: takes key=value" in ended.stderr
    assert "did you mean --scale?" in call("rerun", "table6", "--sclae", "tiny").stderr


def test_rerun_keeps_the_seeds_that_tables_have(checkout: Path, started: Mock) -> None:
    table_with(checkout, "table6", [4, 6, 8])
    assert call("rerun", "ablation_group_norm").exit_code == 0
    targets, files = forced(started)
    assert targets == ["table6", "ablation_group_norm"]
    assert {Path(file).parent.name for file in files} == {"4", "6", "8"}
    assert started.call_args.args[1][-2:] == ["--config", "seeds=[4,6,8]"]
    table_with(checkout, "ablation_group_norm", [4])
    ended = call("rerun", "ablation_group_norm")
    assert ended.exit_code == 2
    assert "table6 [4, 6, 8], ablation_group_norm [4]; give --seeds" in ended.stderr
    call("rerun", "ablation_group_norm", "--seeds", "[5]")
    assert {Path(file).parent.name for file in forced(started)[1]} == {"5"}


def test_a_sweep_is_rerun_with_its_own_seeds(checkout: Path, started: Mock) -> None:
    call("rerun", "lr_sweep")
    assert {Path(file).parent.name for file in forced(started)[1]} == {"1000"}


def test_what_shows_a_run_is_rebuilt_be_it_a_figure_alone(checkout: Path, started: Mock) -> None:
    call("rerun", "table3")
    assert forced(started)[0] == ["table3"]
    figure = checkout / "results/tiny/figures/figure1.svg"
    figure.parent.mkdir(parents=True)
    figure.touch()
    call("rerun", "table3")
    assert forced(started)[0] == ["table3", "figure1"]


def test_nothing_is_started_for_an_unknown_artifact(checkout: Path, started: Mock) -> None:
    ended = call("rerun", "table66")
    assert ended.exit_code == 2
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "rerun: unknown artifact 'table66'; did you mean 'table6'?" in line
    started.assert_not_called()
