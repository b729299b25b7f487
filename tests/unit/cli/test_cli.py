"""The command line: tools for people, and wrong calls."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from typer.testing import CliRunner, Result

from difftransformer.cli import app
from difftransformer.provenance.lock import exclusive
from difftransformer.provenance.sync import SyncReport

RUNNER = CliRunner()


def call(*words: str | Path) -> Result:
    return RUNNER.invoke(app, [str(word) for word in words])


def test_help_names_every_step() -> None:
    said = call("--help").output
    for step in ("tokenise", "pretrain", "evaluate", "build_table", "sync_tracking"):
        assert step in said


def test_check_says_how_much_there_is(repository: Path) -> None:
    ended = call("check", "--config", repository / "config", "--scale", "smoke")
    assert ended.exit_code == 0
    assert "fine at scale smoke" in ended.output


def test_show_prints_a_run_as_its_job_gets_it(repository: Path) -> None:
    ended = call("show", "diff_lambda_0_8", "--config", repository / "config")
    assert json.loads(ended.stdout)["model"]["attention"]["lambda_init"] == 0.8
    assert "parameters" in ended.stderr


def test_outputs_are_the_trainings_of_an_ablation_alone(repository: Path) -> None:
    ended = call(
        "outputs", "ablation_head_count", "--seeds", "2", "--config", repository / "config"
    )
    assert ended.stdout.split() == [
        f"results/tiny/runs/{run}/{seed}/training.json"
        for run in ("transformer_halved_heads", "recall_transformer_halved_heads")
        for seed in (0, 1)
    ]


def test_a_sweep_is_rerun_with_its_own_seeds(repository: Path) -> None:
    ended = call("outputs", "lr_sweep", "--config", repository / "config")
    assert ended.exit_code == 0
    assert {Path(file).parent.name for file in ended.stdout.split()} == {"1000"}


def test_what_shows_a_run_is_rebuilt_be_it_a_figure_alone(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("users", "table3", "--config", repository / "config")
    assert call(*words).stdout.split() == ["table3"]
    figure = tmp_path / "results/tiny/figures/figure1.svg"
    figure.parent.mkdir(parents=True)
    figure.touch()
    assert call(*words).stdout.split() == ["table3", "figure1"]


def test_tracking_is_sent_where_the_configuration_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(repository / "config", tmp_path / "config")
    file = tmp_path / "config" / "config.yaml"
    changed = yaml.safe_load(file.read_text()) | {"results": "elsewhere"}
    file.write_text(yaml.safe_dump(changed | {"tracking": {"uri": "http://127.0.0.1:9"}}))
    monkeypatch.chdir(tmp_path)
    asked = Mock(return_value=SyncReport())
    monkeypatch.setattr("difftransformer.provenance.sync.sync_tracking", asked)
    for environment, options, wanted in (
        ("", (), (Path("elsewhere"), "http://127.0.0.1:9")),
        ("off", (), (Path("elsewhere"), "off")),
        ("", ("--results", "mine", "--tracking", "off"), (Path("mine"), "off")),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environment)
        assert call("sync_tracking", *options).exit_code == 0
        asked.assert_called_with(*wanted)


def test_forget_drops_the_checkpoints_of_an_ablation_alone(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept, gone = (
        tmp_path / "results/tiny/state/pretrain" / run / "0" / "abc" / "checkpoint-00000010"
        for run in ("diff", "transformer_halved_heads")
    )
    for folder in (kept, gone):
        folder.mkdir(parents=True)
    ended = call("forget", "ablation_head_count", "--config", repository / "config")
    assert ended.exit_code == 0
    assert kept.exists() and not gone.exists()


def test_forget_leaves_a_training_that_runs(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "results/tiny/state/pretrain/transformer_halved_heads/0/abc"
    (state / "checkpoint-00000010").mkdir(parents=True)
    with exclusive(state):
        ended = call("forget", "ablation_head_count", "--config", repository / "config")
    assert ended.exit_code == 2
    assert f"process {os.getpid()} is training transformer_halved_heads, seed 0" in caplog.text
    assert (state / "checkpoint-00000010").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "dif"), "unknown run 'dif'; did you mean 'diff'?"),
        (("outputs", "table66"), "unknown artifact 'table66'; did you mean 'table6'?"),
        (("check", "--scale", "tinny"), "unknown scale 'tinny'; did you mean 'tiny'?"),
    ],
)
def test_a_wrong_name_is_one_line(
    words: tuple[str, ...], said: str, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = call(*words, "--config", repository / "config")
    assert ended.exit_code == 2
    assert said in caplog.text
    assert "\n" not in caplog.messages[-1]


def test_a_slice_that_is_none_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "slice.json").write_text('{"scale": "tiny"}')
    ended = call(
        "train_tokenizer", "--slice", tmp_path / "slice.json", "--output", tmp_path / "t.json"
    )
    assert ended.exit_code == 2
    assert "not a DatasetSlice" in caplog.messages[-1]
