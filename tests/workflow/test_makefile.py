"""`make install` detects an unusable .venv, and make never executes a value."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = ("ARTIFACT", "SCALE", "SEEDS", "CORES", "PORT", "ABLATION", "PYTHON")
RECORD = """#!{python}
import json, sys
with open("called", "a") as file:
    print(json.dumps(sys.argv), file=file)
if "results-folder" in sys.argv:
    print("built/tiny")
"""
"""A command that notes how it was called."""


@pytest.fixture
def project(repository: Path, tmp_path: Path) -> Path:
    """A folder whose .venv is up to date, as far as make can tell."""
    folder = tmp_path / "project"
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / "config").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "config/config.yaml"):
        shutil.copy(repository / name, folder / name)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (folder / ".venv" / "installed").write_text(f"{folder.resolve()}\n")
    return folder


@pytest.fixture
def recorded(project: Path) -> Path:
    """The project, with commands that only note how they were called."""
    for name in ("snakemake", "difftransformer"):
        command = project / ".venv" / "bin" / name
        command.write_text(RECORD.format(python=sys.executable))
        command.chmod(0o755)
    return project


def make(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *words], cwd=folder, env=inherited | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def calls(folder: Path) -> list[list[str]]:
    """What was called, each command as its name and words."""
    lines = [json.loads(line) for line in (folder / "called").read_text().splitlines()]
    return [[Path(command).name, *words] for command, *words in lines]


def is_up_to_date(folder: Path) -> bool:
    ended = subprocess.run(
        ["make", "--question", "install"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode == 0


def test_an_environment_that_is_whole_is_left_alone(project: Path) -> None:
    assert is_up_to_date(project)


def test_changed_requirements_install_again(project: Path) -> None:
    newer = (project / ".venv" / "installed").stat().st_mtime + 10
    os.utime(project / "pyproject.toml", (newer, newer))
    assert not is_up_to_date(project)


def test_a_copied_environment_is_made_again(project: Path) -> None:
    copy = shutil.copytree(project, project.with_name("copy"), symlinks=True)
    assert not is_up_to_date(copy)


def test_a_moved_environment_is_made_again(project: Path) -> None:
    assert not is_up_to_date(shutil.move(project, project.with_name("moved")))


def test_an_environment_whose_python_is_gone_is_made_again(project: Path) -> None:
    python = project / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3")
    assert not is_up_to_date(project)


def test_an_environment_reached_through_a_link_is_left_alone(project: Path) -> None:
    link = project.with_name("link")
    link.symlink_to(project)
    assert is_up_to_date(link)


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_value_is_run(recorded: Path, setting: str) -> None:
    for run in (
        "tiny;touch ran", "3';touch ran;'", '"; touch ran; "', "$(touch ran)", "$$(touch ran)",
        "$(shell touch ran)", "${shell touch ran}", "`touch ran`", "tiny\ntouch ran",
        "a\n\ttouch ran", "a & touch ran", "a | tee ran", "a > ran", "\\';touch ran;#",
    ):  # fmt: skip
        for target in ("plan", "install", "rerun", "verify"):
            for ended in (
                make(recorded, target, f"{setting}={run}"),
                make(recorded, target, **{setting: run}),
            ):
                assert ended.returncode == 2, (run, ended.stdout)
                assert f"*** {setting} may contain only letters, digits" in ended.stderr, run
                assert ended.stderr.count("\n") == 1 and ended.stdout == ""
    assert not (recorded / "called").exists()
    assert not [path for path in recorded.rglob("*") if path.name == "ran"]


def test_nothing_of_the_configuration_is_run(recorded: Path) -> None:
    text = "scale: tiny;touch${IFS}ran\nresults: built;touch${IFS}ran\n"
    (recorded / "config" / "config.yaml").write_text(text)
    for target in ("plan", "reproduce", "verify", "help"):
        make(recorded, target)
    assert not (recorded / "ran").exists()


def test_without_a_scale_the_configuration_says(recorded: Path) -> None:
    assert make(recorded, "plan").returncode == 0
    assert calls(recorded) == [
        ["snakemake", "default_targets", "--dry-run"],
        ["difftransformer", "estimate-cost", "default_targets", "--as-planned"],
    ]


def test_what_is_given_reaches_the_commands_as_it_is(recorded: Path) -> None:
    words = ("ARTIFACT=table2 table6", "SCALE=smoke", "SEEDS=[4, 6]", "CORES=all")
    assert make(recorded, "reproduce", *words).returncode == 0
    config = ["--config", "scale=smoke", "seeds=[4, 6]"]
    built = ["snakemake", "table2", "table6", "--cores", "all", *config]
    assert calls(recorded) == [built, ["difftransformer", "results-folder", "--scale", "smoke"]]
    (recorded / "called").unlink()
    ended = make(recorded, "rerun", "ABLATION=ablation_group_norm", *words[1:3], "CORES=2")
    assert ended.returncode == 0
    options = ["--scale", "smoke", "--seeds", "[4, 6]", "--cores", "2"]
    assert calls(recorded) == [["difftransformer", "rerun", "ablation_group_norm", *options]]


def test_the_report_is_linked_by_its_scale(recorded: Path) -> None:
    ended = make(recorded, "reproduce")
    assert ended.stdout.endswith("report: reports/tiny/index.html\n")
    assert (recorded / "reports" / "tiny").readlink() == Path("../built/tiny/report")


def test_verify_compares_the_two_builds(recorded: Path) -> None:
    assert make(recorded, "verify", "CORES=2").returncode == 0
    assert calls(recorded)[-1] == [
        "difftransformer", "verify", "built/tiny", "results-verify/smoke",
    ]  # fmt: skip
    aside = ["--drop-metadata", "--config", "scale=smoke", "results=results-verify"]
    assert calls(recorded)[1] == ["snakemake", "default_targets", "--cores", "2", *aside]
