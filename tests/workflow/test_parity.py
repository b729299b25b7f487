"""Rules run the step of their name, and targets have descriptions."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from small_workflow import Checkout, copy_of

from difftransformer.cli.rules import RULES
from difftransformer.planning.rules import ENTRIES

RULE = re.compile(
    r"^(?:use )?rule (?:\w+ as )?(\w+)(?: with)?:.*?(?=^(?:use )?rule |\Z)",
    re.MULTILINE | re.DOTALL,
)


def rules(repository: Path) -> dict[str, str]:
    """Rules that run a command, by name."""
    return {
        match.group(1): match.group(0)
        for file in sorted((repository / "workflow" / "rules").glob("*.smk"))
        for match in RULE.finditer(file.read_text())
        if "message:" in match.group(0)
    }


def test_a_rule_does_the_step_of_its_name(repository: Path) -> None:
    rule_texts = rules(repository)
    assert {*ENTRIES, "judge_answers"} == set(rule_texts) == set(RULES)
    for name, text in rule_texts.items():
        assert f'rule="{name}"' in text


def test_every_rule_has_log_and_message(repository: Path) -> None:
    for name, text in rules(repository).items():
        for part in ("log:", "message:"):
            assert part in text, f"{name} has no {part}"


def test_targets_are_listed_with_one_line_each(finished: Checkout) -> None:
    listed = finished.snakemake("--list-target-rules", "--config", "results=listed").stdout
    assert not (finished.folder / "listed").exists()
    for name, says in (
        ("table6", "Validation loss, AR-Hit and Others"),
        ("default_targets", "(the default)"),
        ("all", "every table and figure"),
    ):
        assert re.search(rf"^{name}\b", listed, re.MULTILINE), listed
        assert says in listed


def test_make_asks_which_ablation(repository: Path) -> None:
    ended = subprocess.run(
        ["make", "--old-file=install", "rerun"],
        cwd=repository, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "error: which one? make rerun ABLATION=ablation_group_norm" in ended.stderr


def test_make_refuses_a_misspelled_setting(repository: Path) -> None:
    typed = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    ended = subprocess.run(
        ["make", "--dry-run", "--old-file=install", "reproduce", "ARTIFAC=table6"],
        cwd=repository, env=typed, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "unknown variable ARTIFAC; allowed: ARTIFACT SCALE SEEDS" in ended.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("results/tiny/runs/diff/0/training.json", "--config", "scale=smoke"),
            "training.json': that is of scale tiny; give --config scale=tiny",
        ),
        (
            ("tabel6", "--config", "results=nothing"),
            "error: there is no target 'tabel6'; did you mean 'table6'?",
        ),
        (
            ("results/smoke/data/local_files/manifest.json",),
            "error: dataset local_files: source files: no file matches 'data'",
        ),
        (("--cores", "0"), "error: --cores 0: nothing could ever run"),
        pytest.param(("--cores", "-1"), "nothing could ever run", marks=pytest.mark.slow),
        pytest.param(("--cores", "abc"), "must be integer or 'all'", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_call_is_one_line_and_starts_nothing(
    words: tuple[str, ...], message: str, finished: Checkout
) -> None:
    ended = finished.snakemake("--cores", "1", *words, check=False)
    assert ended.returncode != 0
    lines = [line for line in ended.stderr.splitlines() if message in line]
    assert len(lines) == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (finished.folder / "nothing").exists()


def test_what_does_not_fit_its_machine_starts_nothing(repository: Path, tmp_path: Path) -> None:
    alone = "overrides={transformer_3b_1t: {training: {world_size: 1}}}"
    words = ("table1", "--cores", "1", "--config", "scale=paper", "results=large", alone)
    ended = copy_of(repository, tmp_path).snakemake(*words, check=False)
    assert ended.returncode != 0 and "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "run transformer_3b_1t needs" in line and "raise training.world_size (1)" in line
    assert {path.name for path in (tmp_path / "large/paper").glob("*")} <= {"plan"}


def test_a_wrong_setting_is_one_line_and_starts_nothing(checkout: Checkout) -> None:
    checkout.edit("config/scales/smoke.yaml", "warmup_steps:", "warmup_stesp:")
    results = checkout.folder / "results"
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    ended = checkout.snakemake("--cores", "1", "--forceall", check=False)
    assert ended.returncode != 0
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "config/scales/smoke.yaml" in line and "did you mean 'warmup_steps'?" in line
    assert "Traceback" not in ended.stderr
    assert before == {path: path.stat().st_mtime_ns for path in results.rglob("*")}


def test_results_on_a_disk_that_is_away_are_one_line(finished: Checkout) -> None:
    away = finished.folder / "away"
    away.symlink_to("/nowhere/disk")
    try:
        ended = finished.snakemake("--cores", "1", "--config", "results=away", check=False)
    finally:
        away.unlink()
    assert ended.returncode != 0
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert errors == ["error: away: File exists; choose another path, or move what is in the way"]
    assert "Traceback" not in ended.stderr and not re.search(r"line \d", ended.stderr)
