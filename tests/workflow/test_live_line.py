"""The logger plugin under a real Snakemake, with a workflow of three jobs."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from preloaded import python

from snakemake_logger_plugin_difftransformer.board import Board
from snakemake_logger_plugin_difftransformer.remaining import FIRST_BUILD, Remaining, Underway

SOURCES = Path(__file__).resolve().parents[2] / "src"
SNAKEFILE = """
rule all:
    input: "elsewhere/train_a_0.txt", "elsewhere/other.txt"

rule train:
    output: "elsewhere/train_{run}_{seed}.txt"
    log: "elsewhere/logs/train_{run}_{seed}.log"
    shell:
        "mkdir -p elsewhere/state/train/x && cp beat.json elsewhere/state/train/x/progress.json"
        " && sleep 2.5 && touch {output}"

rule other:
    output: "elsewhere/other.txt"
    log: "elsewhere/logs/other.log"
    shell: "FAIL touch {output}"
"""
BEAT = {"run": "a", "seed": 0, "step": 7, "steps": 90, "loss": 2.25}
BEAT |= {"tokens_per_second": 31200.0, "eta_seconds": 75.2, "updated": 1.0}
FAIL = "(echo working; echo 'error: corpus.txt is empty: give more'; echo bye) > {log}; exit 2; "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Snakefile").write_text(SNAKEFILE.replace("FAIL ", ""))
    (tmp_path / "beat.json").write_text(json.dumps(BEAT))
    return tmp_path


def command(*more: str) -> list[str]:
    options = ["--logger", "difftransformer", "--logger-difftransformer-interval", "0.4"]
    return ["-m", "snakemake", "--cores", "2", *options, *more]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm", "COLUMNS": "100"}


def test_plain_lines_and_a_failure_where_there_is_no_terminal(folder: Path) -> None:
    (folder / "Snakefile").write_text(SNAKEFILE.replace("FAIL ", FAIL))
    ended = python(*command("--keep-going"), cwd=folder, env=environment())
    lines = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert "3 jobs to do" in lines
    assert any("train a 0: step 7/90 loss 2.250 31.2k tok/s ETA 1:15" in line for line in lines)
    block = (
        "FAILED other\n    log: elsewhere/logs/other.log\n    error: corpus.txt is empty: give more"
    )
    assert block in ended.stderr
    assert [line[:17] for line in lines if line.startswith("[")] == ["[1/3] train a 0 i"]
    assert lines[-3].startswith("1 of 3 jobs done, 1 failed, 0:0")
    assert lines[-2] == "failed: other (log: elsewhere/logs/other.log)"
    assert lines[-1] == "    error: corpus.txt is empty: give more"
    assert not any("Shell command" in line or "Building DAG" in line for line in lines)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (
            "kill -9 $$",
            "killed by SIGKILL, most likely for lack of memory: the same command resumes",
        ),
        ("kill -15 $$", "killed by SIGTERM: the same command resumes"),
    ],
)
def test_a_killed_job_reports_its_signal(folder: Path, ends: str, message: str) -> None:
    (folder / "Snakefile").write_text(
        SNAKEFILE.replace("FAIL ", f"echo step 3 > {{log}}; {ends}; ")
    )
    ended = python(*command("--keep-going"), cwd=folder, env=environment())
    assert ended.stderr.splitlines()[-1] == f"    error: {message}; last line of its log: step 3"
    assert "RuleException" not in ended.stderr


def test_what_failed_and_was_done_at_last_has_not_failed() -> None:
    board = Board()
    board.plan({"train": 2})
    for job, outcomes in {1: "xxo", 2: "xx"}.items():
        for outcome in outcomes:
            board.start(job, "train", {"run": str(job)}, [], time.time())
            _ = board.finish(job) if outcome == "o" else board.fail(job, "train", [])
    ending = board.ending()
    assert ending.startswith("1 of 2 jobs done, 1 failed")
    assert ending.count("failed: train") == 1 and "failed: train 2 (log: none)" in ending


def test_a_dry_run_looks_as_ever(folder: Path) -> None:
    dry = python(*command("--dry-run"), cwd=folder, env=environment())
    assert dry.returncode == 0
    assert "rule train:" in dry.stdout + dry.stderr
    assert "wildcards: run=a, seed=0" in dry.stdout + dry.stderr


def test_a_terminal_is_refreshed_in_place(folder: Path) -> None:
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *command()],
        cwd=folder,
        env=environment() | {"NO_COLOR": "1"},
        stdout=terminal,
        stderr=terminal,
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
    assert not re.search(r"\x1b\[[\d;]*m", text)  # NO_COLOR: none has a color or a weight
    assert "3 of 3 jobs done" in text.splitlines()[-1]


def test_a_job_of_another_rule_does_not_show_the_steps_of_the_training(tmp_path: Path) -> None:
    (tmp_path / "state" / "train" / "x").mkdir(parents=True)
    (tmp_path / "state" / "train" / "x" / "progress.json").write_text(json.dumps(BEAT))
    board = Board()
    for job, rule in enumerate(("train", "judge", "tidy")):
        logs = [] if rule == "tidy" else [f"{tmp_path}/logs/{rule}/a.log"]
        board.start(job, rule, {"run": "a", "seed": "0"}, logs, time.time())
    _, *lines = board.lines()
    assert [line.partition(": ")[2] for line in lines] == [
        "step 7/90 loss 2.250 31.2k tok/s ETA 1:15", "0:00", "0:00",
    ]  # fmt: skip


def test_what_is_left_follows_from_what_jobs_took(tmp_path: Path) -> None:
    left = Remaining()
    left.plan({"train": 4, "evaluate": 8, "page": 2})
    assert left.seconds(0.0, []) is None
    left.start("train")
    left.start("train")
    # Two run side by side and foresee 20 s; of the others nothing is known but a guess.
    both = [Underway("train", name, 10.0, 10.0) for name in "ab"]
    assert left.seconds(10.0, both) == pytest.approx((2 * 10 + 2 * 20 + 10 * 5) / 2)
    for job in both:
        left.finish("train", job.name, 30.0)
    left.start("evaluate")
    left.finish("evaluate", "a", 2.0)
    # Nothing runs: what has ended counts.
    assert left.seconds(31.0, []) == pytest.approx((2 * 30 + 7 * 2 + 2 * 5) / 2)
    left.save_history(tmp_path)
    again = Remaining()
    again.load_history(tmp_path)
    again.plan({"evaluate": 10, "train": 1})
    again.start("train")
    assert again.seconds(1.0, [Underway("train", "new", 1.0, 9.0)]) == pytest.approx(9 + 10 * 2)
    # Those that are remembered last as long as then, times what a machine is slower.
    again.plan({"train": 2})
    again.start("train")
    ran = Underway("train", "a", 10.0, 900.0)  # it will stop early, and does not know
    assert again.seconds(10.0, [ran]) == pytest.approx(20 + 30)
    again.finish("train", "a", 60.0)
    assert again.seconds(60.0, []) == pytest.approx(2 * 30)


def test_a_first_build_estimates_from_the_shipped_history(tmp_path: Path) -> None:
    shipped = json.loads(FIRST_BUILD.read_text())["seconds"]
    counts = {rule: len(took) for rule, took in shipped.items()}
    for scale, foreseen in (
        ("tiny", sum(map(sum, map(dict.values, shipped.values())))),
        ("gpu", 0),
    ):
        left = Remaining()
        left.load_history(tmp_path / scale / "state")
        left.plan(counts)
        estimate = left.seconds(1.0, [])
        assert (estimate or 0) == pytest.approx(foreseen, abs=15)
    # Of another table, whose jobs are among them, and whose trainings do not foresee their end.
    left = Remaining()
    left.load_history(tmp_path / "tiny" / "state")
    left.plan({"pretrain": 8})
    (first, lasts), (second, longer), *rest = shipped["pretrain"].items()
    left.start("pretrain")
    left.start("pretrain")
    both = [Underway("pretrain", first, 10.0, 300.0), Underway("pretrain", second, 10.0, 300.0)]
    work = lasts + longer - 20 + 6 * sum(seconds for _, seconds in rest) / len(rest)
    assert left.seconds(10.0, both) == pytest.approx(work / 2)
    # Of others they say nothing.
    strange = [Underway("pretrain", name, 10.0, 300.0) for name in ("tiny a 6", "tiny b 6")]
    assert left.seconds(10.0, strange) == pytest.approx((2 * 300 + 6 * 310) / 2)
    # Twice as slow, two side by side in another order: told within 30% from a tenth on.
    waiting = [(rule, name, 2 * s) for rule, took in shipped.items() for name, s in took.items()]
    waiting.sort(key=lambda job: (job[0] != "tokenize", job[0] == "report", job[1][::-1]))
    left = Remaining()
    left.load_history(tmp_path / "tiny" / "state")
    left.plan(counts)
    now, running, estimates = 0.0, [], {}
    while waiting or running:
        while waiting and len(running) < 2:
            rule, name, seconds = waiting.pop(0)
            left.start(rule)
            running.append((rule, name, now, now + seconds))
        first = min(running, key=lambda job: job[3])
        for at in range(int(now) + 1, int(first[3]) + 1):
            under_way = [Underway(rule, name, at - begun) for rule, name, begun, _ in running]
            estimates[at] = left.seconds(at, under_way)
        now = max(now, first[3])
        running.remove(first)
        left.finish(first[0], first[1], first[3] - first[2])
    for at, seconds in estimates.items():
        if 0.1 * now <= at <= 0.9 * now:
            assert abs(seconds - (now - at)) <= 0.3 * (now - at), (at, seconds, now)


def test_damaged_memory_of_earlier_builds_is_no_memory(tmp_path: Path) -> None:
    for text in ("{", "[1]", '{"train": null}', '{"train": 3.0}', '{"train": {"a": "b"}}'):
        (tmp_path / "job_seconds.json").write_text(text)
        left = Remaining()
        left.load_history(tmp_path)
        left.plan({"train": 1})
        left.finish("other", "", 1.0)
        assert left.seconds(1.0, []) == pytest.approx(5.0)


def test_jobs_stopped_by_the_user_are_not_reported_as_failed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("working\nwarning: stopped from the keyboard\n")
    board = Board()
    board.plan({"train": 3})
    for job in (1, 2, 3):
        board.start(job, "train", {"run": str(job)}, [str(log)], time.time())
    assert board.fail(1, "train", [str(log)]) == "stopped train 1"
    log.write_text("working\n")
    assert board.fail(2, "train", [str(log)], None, "SIGINT") == "stopped train 2"
    board.stopping = True
    assert board.fail(3, "train", [str(log)], None, "SIGKILL") == "stopped train 3"
    head, last = board.ending().splitlines()
    assert head.startswith("0 of 3 jobs done, 3 stopped") and last.startswith("stopped: the same")


def test_a_job_that_never_started_ignores_the_log_of_an_earlier_attempt(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("12:00:00 tokenizer: learns\n")
    board, later = Board(), log.stat().st_mtime + 10
    for since, message in ((later, "no such memory"), (later - 20, "12:00:00 tokenizer: learns")):
        board.start(1, "train", {"run": "a"}, [str(log)], since)
        assert board.fail(1, "train", [str(log)], "no such memory\nmore").endswith(
            f"\n    {message}"
        )


def test_a_stopped_workflow_shows_no_failure(folder: Path) -> None:
    import signal

    (folder / "Snakefile").write_text(SNAKEFILE.replace("FAIL ", "sleep 60; "))
    heeding = "import os, signal, sys; signal.signal(2, signal.default_int_handler);"
    heeding += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"  # it may be ignored here
    process = subprocess.Popen(
        [sys.executable, "-c", heeding, *command()],
        cwd=folder, env=environment(), start_new_session=True, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    stderr = ""
    while " other" not in stderr:
        stderr += process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    stderr += process.stderr.read()
    assert process.wait() != 0
    assert "stopped other" in stderr and "stopped: the same command resumes" in stderr
    for text in ("FAILED", "failed", "complete successfully"):
        assert text not in stderr


def test_a_dry_run_gives_no_advice_to_wipe_records(folder: Path) -> None:
    python(*command(), cwd=folder, env=environment())
    snakefile = (folder / "Snakefile").read_text()
    (folder / "Snakefile").write_text(snakefile.replace("&& touch", "&& echo >"))
    ended = python(*command("--dry-run"), cwd=folder, env=environment())
    output = ended.stdout + ended.stderr
    assert "train" in output and "This was a dry-run" in output
    assert "cleanup-metadata" not in output and "--rerun-triggers" not in output


def test_a_table_that_is_not_built_here_says_why(folder: Path) -> None:
    snakefile = (folder / "Snakefile").read_text()
    call = "set_targets(['table6', 'table9'], {}, {'table7': 'scale tiny has no setting for it'})\n"
    head = f"from snakemake_logger_plugin_difftransformer import set_targets\n{call}"
    (folder / "Snakefile").write_text(head + snakefile)
    for target in ("table7", "results/tiny/tables/table7.md"):
        ended = python(*command("-n", target), cwd=folder, env=environment())
        message = f"error: there is no target '{target}' here: scale tiny has no setting for it"
        assert message in ended.stdout + ended.stderr


def test_a_home_that_cannot_be_written_is_one_line(folder: Path) -> None:
    (folder / "file").touch()
    home = {"HOME": str(folder / "file")}
    variables = {name: text for name, text in environment().items() if name != "XDG_CACHE_HOME"}
    ended = python(*command("-n"), cwd=folder, env=variables | home)
    line = ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert line.startswith(f"error: {folder}/file/.cache/snakemake: Snakemake cannot write its")
    assert "set XDG_CACHE_HOME to a folder" in line and ended.returncode == 1
    there = home | {"XDG_CACHE_HOME": str(folder / "cache")}
    assert python(*command("-n"), cwd=folder, env=variables | there).returncode == 0
