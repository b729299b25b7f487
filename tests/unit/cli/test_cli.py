"""The command line: tools for people, and wrong calls."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pytest
import yaml
from command_line import RUNNER, call, table_with
from steps import step_words
from typer.main import get_command

import difftransformer
from difftransformer.cli import app, command_group, ui
from difftransformer.config.papers import GROUPS
from difftransformer.planning.plan import Plan
from difftransformer.reporting import serving
from difftransformer.tracking.sync import SyncReport


def test_the_help_lists_commands_for_people_and_hides_internal_steps() -> None:
    output = call("--help").output
    assert output.index(command_group.BUILD) < output.index(" build ") < output.index(" show ")
    assert not {"step", "results-folder", "write-schema"} & set(output.split())
    assert "─ Commands ─" not in output  # every command is in a panel
    assert "Exit status: 0" in output


@pytest.mark.parametrize("name", command_group.command_names())
def test_each_help_has_two_examples_that_parse(name: str) -> None:
    command = get_command(app).commands[name]
    examples = [line for line in (command.epilog or "").splitlines() if line.startswith("$ ")]
    assert len(examples) >= 2
    for example in examples:
        program, called, *words = shlex.split(example.removeprefix("$ "))
        assert (program, called) == ("difftransformer", name)
        command.make_context(name, words)


def test_check_says_how_much_there_is(repository: Path) -> None:
    ended = call("check-config", "--config-dir", repository / "config", "--scale", "smoke")
    assert ended.exit_code == 0
    assert "valid at scale smoke" in ended.output


def test_show_prints_a_run_as_its_job_gets_it(repository: Path) -> None:
    ended = call("show", "diff_lambda_0_8", "--config-dir", repository / "config")
    assert json.loads(ended.stdout)["model"]["attention"]["lambda_init"] == 0.8
    assert "parameters" in ended.stderr


def test_show_says_which_file_and_key_sets_each_value(repository: Path) -> None:
    folder = repository / "config"
    words = ("diff_lambda_0_8", "--origins", "--scale", "tiny", "--config-dir", folder)
    lines = dict(line.split("  # ") for line in call("show", *words).stdout.splitlines())
    runs, scale = folder / "runs.yaml", folder / "scales" / "tiny.yaml"
    assert lines["model.attention.lambda_init = 0.8"] == f"{runs}: runs.diff_lambda_0_8.overrides"
    assert lines["training.lr = 0.008"] == f"{scale}: learning_rates.diff_lambda_0_8"
    assert lines["training.eps = 1e-08"] == "default, or follows from other settings"


@pytest.mark.parametrize(
    ("run", "message"),
    [
        # At tiny D = 128, d = 16: Q 16, K 4, V 4 and O 8 heads and 8 rows of lambda, against O 16.
        ("diff_v2", "66,560 parameters in the attention of each layer, -18.8% against the 81,920"),
        ("diff_v2", "query heads (16) and key heads (4)"),
        ("transformer", "65,536 parameters in the attention of each layer, +0.0% against"),
        ("grouped_diff_2_1", "45,152 parameters in the attention of each layer\n"),
    ],
)
def test_show_compares_attention_with_plain_attention(
    run: str, message: str, repository: Path
) -> None:
    assert (
        message
        in call("show", run, "--config-dir", repository / "config", "--scale", "tiny").stderr
    )


def test_list_shows_built_artifacts_with_their_seeds(checkout: Path) -> None:
    table_with(checkout, "table6", [4, 6, 8])
    lines = {line.split()[0]: line for line in call("list").output.splitlines()}
    assert lines["table6"].split()[1:3] == ["3", "seeds"] and lines["table2"].split()[1] == "-"
    assert call("list", "--runs").output.startswith("transformer ")


def test_a_closed_pipe_is_no_error(checkout: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "difftransformer", "list"]
    ended = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (ended.stderr, ended.returncode) == ("", 128 + signal.SIGPIPE)


def test_version_is_printed(checkout: Path) -> None:
    assert call("--version").output == f"difftransformer {difftransformer.__version__}\n"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("table6", "--cores {} table6"),
        (
            "diff_v1 --seeds 3 -n --scale smoke",
            "--cores {} --dry-run diff_v1 --config scale=smoke seeds=3",
        ),
        ("table6 --dryrun --keep-going", "--cores {} table6 --dryrun --keep-going"),
        ("table6 --seeds [4,6]", "--cores {} table6 --config seeds=[4,6]"),
        (
            "table6 --scale smoke -C corpus=local_files",
            "--cores {} table6 --config scale=smoke corpus=local_files",
        ),
        ("build --cores 1", "--cores 1"),
        (
            "build table6 table7 --forceall --config corpus=local_files",
            "--cores {} table6 table7 --forceall --config corpus=local_files",
        ),
        (
            "table6 --scale smoke --config a=1 b=2 -n --config seeds=2 --keep-going",
            "--cores {} --dry-run table6 --keep-going --config scale=smoke a=1 b=2 seeds=2",
        ),
        (
            "table6 -Ccorpus=local_files --forcerun x y",
            "--cores {} table6 --forcerun x y --config corpus=local_files",
        ),
        (
            "table6 -C corpus=local_files",
            "--cores {} table6 --config corpus=local_files",
        ),
        (
            "table6 --config=corpus=local_files",
            "--cores {} table6 --config corpus=local_files",
        ),
    ],
)  # fmt: skip
def test_the_name_of_a_table_builds_it(
    words: str, wanted: str, checkout: Path, started: Mock
) -> None:
    assert call(*words.split()).exit_code == 0
    assert started.call_args.args[1][3:] == wanted.format(os.cpu_count()).split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("tabel6", "No such command 'tabel6'; did you mean 'table6'?"),
        ("reurn", "No such command 'reurn'; did you mean 'rerun'?"),
        ("qqqq", "No such command 'qqqq'; allowed: build, rerun, list"),
        ("rerun", "Missing argument 'artifact'; see `difftransformer rerun --help`"),
        ("estimate-cost --seeds x", "seeds: needs a list of seeds, or how many there shall be"),
        ("table6 --sclae smoke", "error: no such option --sclae; did you mean --scale?"),
        ("table6 --core 3", "error: no such option --core; did you mean --cores?"),
        ("list --scal tiny", "No such option: --scal (Possible options: --scale); see"),
        ("open table66", "open: unknown artifact 'table66'; did you mean 'table6'?"),
        ("open", "results/tiny/report/index.html: not built yet: difftransformer build"),
    ],
)
def test_a_wrong_call_is_a_one_line_error_with_a_fix(
    words: str, message: str, checkout: Path
) -> None:
    ended = RUNNER.invoke(app, words.split(), prog_name="difftransformer")
    assert ended.exit_code == 2
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert message in line


def test_a_shell_completes_what_can_be_built(checkout: Path) -> None:
    assert command_group.complete_target("table6") == ["table6", "table6_recall"]
    assert {"default_targets", "diff_v1", "dex"} <= set(command_group.complete_target(""))
    resolver = Plan.load(checkout / "config").resolver
    assert {*command_group.targets()} == {*resolver.artifacts, *resolver.papers.papers, *GROUPS}
    assert command_group.targets(checkout / "elsewhere") == []
    typed = {"_DIFFTRANSFORMER_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    for word, completions in {"table6": ["table6", "table6_recall"], "buil": ["build"]}.items():
        environment = typed | {"COMP_WORDS": f"difftransformer {word}"}
        ended = RUNNER.invoke(app, [], env=environment, prog_name="difftransformer")
        assert ended.stdout.split() == completions


def test_open_shows_the_page_of_a_table(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = checkout / "results/tiny/report/table6.html"
    page.parent.mkdir(parents=True)
    page.touch()
    open_browser = Mock(return_value=True)
    monkeypatch.setattr("webbrowser.open", open_browser)
    assert call("open", "table6").exit_code == 0
    open_browser.assert_called_once_with(page.resolve().as_uri())


def test_tracking_is_sent_where_the_configuration_says(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(repository / "config", tmp_path / "config")
    file = tmp_path / "config" / "config.yaml"
    changed = yaml.safe_load(file.read_text()) | {"results": "elsewhere"}
    file.write_text(yaml.safe_dump(changed | {"tracking": {"uri": "http://127.0.0.1:9"}}))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    sync = Mock(return_value=SyncReport())
    monkeypatch.setattr("difftransformer.tracking.sync.sync_tracking", sync)
    for environment, options, wanted in (
        ("", (), (Path("elsewhere"), "http://127.0.0.1:9")),
        ("off", (), (Path("elsewhere"), "off")),
        ("", ("--results", "mine", "--tracking", "off"), (Path("mine"), "off")),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environment)
        assert call("sync-tracking", *options).exit_code == 0
        sync.assert_called_with(*wanted)


@pytest.mark.parametrize("store", ["databricks", "databricks://mine"])
def test_ui_starts_no_server_for_databricks(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Mock()
    monkeypatch.setattr(ui, "_start", started)
    (stopped := Event()).set()
    monkeypatch.setattr(ui, "_stop_signals", lambda: stopped)
    monkeypatch.setattr(serving, "report_server", lambda *_: nullcontext(Mock()))
    monkeypatch.setattr(serving, "scales_with_report", lambda _root: ["tiny"])
    result = call("ui", "--results", tmp_path, "--tracking", store)
    assert result.exit_code == 0 and result.stdout.startswith("report at scale tiny: ")
    assert "databricks" not in result.stdout
    started.assert_not_called()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "dif"), "unknown run 'dif'; did you mean 'diff'?"),
        (("check-config", "--scale", "tinny"), "unknown scale 'tinny'; did you mean 'tiny'?"),
    ],
)
def test_an_unknown_name_is_a_one_line_error(
    words: tuple[str, ...], message: str, repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = call(*words, "--config-dir", repository / "config")
    assert ended.exit_code == 2
    assert message in caplog.text
    assert "\n" not in caplog.messages[-1]


def test_a_slice_that_is_none_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "slice.json").write_text('{"scale": "tiny"}')
    output = {"tokenizer": tmp_path / "t.json"}
    ended = call(*step_words("train_tokenizer", tmp_path / "slice.json", {}, output))
    assert ended.exit_code == 2
    assert "not a ResolvedDataset" in caplog.messages[-1]


def test_files_of_a_step_come_by_standard_input(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    *words, _, files = step_words(
        "count_ngrams", tmp_path / "none.json", {"data": "x/manifest.json"}, {}
    )
    assert RUNNER.invoke(app, words, input=files).exit_code == 2
    assert "none.json: no such file or directory; run snakemake" in caplog.messages[-1]


def test_costs_of_what_does_not_exist_are_one_line(repository: Path) -> None:
    assert call("estimate-cost", "tabel1", "--config-dir", repository / "config").exit_code == 2
    result = call("estimate-cost", "table1", "--config-dir", repository / "config")
    assert result.exit_code == 0 and "GPU-hours" in result.output


def test_make_plan_gets_costs_of_scales_with_a_machine_alone(repository: Path) -> None:
    words = ("estimate-cost", "table1", "--as-planned", "--config-dir", repository / "config")
    unforeseen = call(*words)  # of config.yaml's scale
    assert unforeseen.exit_code == 0 and unforeseen.output == ""
    assert "GPU-hours" in call(*words, "--scale", "paper").output


def test_the_results_folder_is_printed_for_make(
    repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert call("results-folder", "--config-dir", repository / "config").output == "results/tiny\n"
    options = ("--scale", "smoke", "--config-dir", repository / "config")
    assert call("results-folder", *options).output == "results/smoke\n"
    (tmp_path / "config.yaml").write_text("scale: tiny;touch${IFS}x\nheadline: []\n")
    assert call("results-folder", "--config-dir", tmp_path).exit_code == 2
    assert "scale: 'tiny;touch${IFS}x' is no name" in caplog.messages[-1]


@pytest.mark.parametrize(
    "imported",
    [
        "from difftransformer.provenance.command_errors import report_errors\n"
        "with report_errors(): import peft",
        "import difftransformer\ndifftransformer.register()\n"
        "from transformers import AutoModelForCausalLM, Trainer",
    ],
)
def test_what_is_imported_says_nothing(imported: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", imported], capture_output=True, text=True, check=True
    )
    assert ended.stdout + ended.stderr == ""
