"""The logger plugin under a real Snakemake, with a workflow of three jobs."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src"
SNAKEFILE = """
rule all:
    input: "results/train_a_0.txt", "results/other.txt"

rule train:
    output: "results/train_{run}_{seed}.txt"
    log: "results/logs/train_{run}_{seed}.log"
    params: beat=lambda w: (
        '{"run": "%s", "seed": %s, "step": 7, "steps": 90, "loss": 2.25, '
        '"tokens_per_second": 31200, "eta_seconds": 75}' % (w.run, w.seed))
    shell: "mkdir -p results/state/x && echo '{params.beat}' > results/state/x/progress.json"
           " && sleep 1.5 && touch {output}"

rule other:
    output: "results/other.txt"
    log: "results/logs/other.log"
    shell: "FAIL touch {output}"
"""
FAIL = "(echo working; echo 'error: corpus.txt is empty: give more'; echo bye) > {log}; exit 2; "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("FAIL ", ""))
    return tmp_path


def command(*more: str) -> list[str]:
    options = ["--logger", "difftransformer", "--logger-difftransformer-interval", "0.4"]
    return [sys.executable, "-m", "snakemake", "--cores", "2", *options, *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm", "COLUMNS": "100"}


def snakemake(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*more), cwd=folder, env=environment(), capture_output=True, text=True, check=False
    )


def test_plain_lines_where_there_is_no_terminal(folder: Path) -> None:
    done = snakemake(folder)
    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert "3 jobs to do" in lines
    assert any("train a 0: step 7/90 loss 2.250 31.2k tok/s ETA 1:15" in line for line in lines)
    finished = [line.split(" in ")[0] for line in lines if line.startswith("[")]
    assert finished == ["[1/3] other", "[2/3] train a 0", "[3/3] all"]
    assert lines[-1].startswith("3 of 3 jobs done, 0:0")
    assert not any("Shell command" in line or "Building DAG" in line for line in lines)
    again = snakemake(folder)
    assert "Nothing to be done" in again.stderr
    assert "jobs done" not in again.stderr


def test_a_failed_job_shows_its_log_and_error(folder: Path) -> None:
    (folder / "Snakefile").write_text(SNAKEFILE.replace("FAIL ", FAIL))
    failed = snakemake(folder)
    assert failed.returncode == 1
    block = (
        "FAILED other\n    log: results/logs/other.log\n    error: corpus.txt is empty: give more"
    )
    assert block in failed.stderr
    assert failed.stderr.splitlines()[-1] == "failed: other (log: results/logs/other.log)"


def test_a_dry_run_looks_as_ever(folder: Path) -> None:
    dry = snakemake(folder, "--dry-run")
    assert dry.returncode == 0
    assert "rule train:" in dry.stdout + dry.stderr
    assert "wildcards: run=a, seed=0" in dry.stdout + dry.stderr


def test_a_terminal_is_refreshed_in_place(folder: Path) -> None:
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        command(), cwd=folder, env=environment(), stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    screen = b""
    try:
        while chunk := os.read(master, 65536):
            screen += chunk
    except OSError:
        pass  # the far end is closed
    os.close(master)
    assert process.wait() == 0
    text = screen.decode()
    assert "step 7/90 loss 2.250 31.2k tok/s ETA 1:15" in text
    assert "\x1b[2K" in text  # lines are erased and drawn again
    assert "3 of 3 jobs done" in text.splitlines()[-1]
