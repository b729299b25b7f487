import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from difftransformer.errors import ConfigError, DataError
from difftransformer.provenance import environment
from difftransformer.provenance.environment import check_variables
from difftransformer.provenance.result import Result, job_id, origin, read_result, write_result


def result(**metrics: float | None) -> Result:
    return Result(
        kind="evaluation",
        job_id=job_id("evaluate", "diff_v1", 3, "ab" * 32),
        scale="tiny",
        run="diff_v1",
        seed=3,
        suite="slices",
        metrics=metrics,
        settings={"n": 2},
        provenance=origin("ab" * 32, started=datetime.now(UTC), threads=1),
    )


def test_round_trip_keeps_every_digit(tmp_path: Path) -> None:
    written = result(loss=0.1 + 0.2, steps=7, steps_to_learn=None)
    write_result(tmp_path / "result.json", written)
    assert read_result(tmp_path / "result.json") == written


def test_job_ids_are_the_same_everywhere() -> None:
    assert job_id("pretrain", "diff_v1", 0, "0123456789abcdef") == "pretrain-diff_v1-0-0123456789"
    assert job_id("tokenize", "stdlib text", None, "f" * 64) == "tokenize-stdlib_text-ffffffffff"


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="finite number"):
        result(loss=float("nan"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "no such result file"),
        ("", "not a complete result file"),
        ('{"kind": "x"}', "checksum mismatch"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: str | None, match: str) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=match) as caught:
        read_result(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_environment_outside_a_checkout_is_unknown(tmp_path: Path) -> None:
    assert environment.git_state(tmp_path) == ("unknown", None)


def test_environment_without_git_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    environment.git_state.cache_clear()
    assert environment.git_state() == ("unknown", None)
    environment.git_state.cache_clear()


def test_environment_records_commit_and_dirt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as inside a git hook
    git = environment._git
    git(tmp_path, "init", "-q")
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    (tmp_path / "old.py").touch()
    git(tmp_path, "add", "old.py")
    git(tmp_path, *identity, "commit", "-q", "-m", "first")
    environment.git_state.cache_clear()
    commit, dirty = environment.git_state(tmp_path)
    assert (len(commit), dirty) == (40, False)
    (tmp_path / "new.py").write_text("x = 1\n")
    environment.git_state.cache_clear()
    assert environment.git_state(tmp_path) == (commit, True)
    environment.git_state.cache_clear()
    installed = tmp_path / ".venv" / "difftransformer"  # the commit around it is another project's
    installed.mkdir(parents=True)
    (installed / "new.py").touch()
    assert environment.git_state(installed) == ("unknown", None)
    environment.git_state.cache_clear()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("DIFFTRANSFORMER_JOB_PER_GPU", "3", "unknown, .*; did you mean 'DIFFTRANSFORMER_JOBS"),
        ("DIFFTRANSFORMER_ARITHMETIC", "torch", "unknown, so it has no effect; unset it"),
        ("DIFFTRANSFORMER_PORTS", "1", "unknown"),
        ("DIFFTRANSFORMER_MEMORY_CHECK", "OFF", "'OFF' is not allowed; set it to off"),
        ("DIFFTRANSFORMER_WARM", "0", "'0' is not allowed; set it to off"),
        ("DIFFTRANSFORMER_DISK", "ssd", "'ssd' is not allowed; set it to passing"),
    ],
)
def test_a_variable_that_would_be_ignored_is_an_error(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_variables()
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"environment variable {name}: {message}"):
        check_variables()


def test_the_variables_of_ours_are_those_of_the_code(repository: Path) -> None:
    """And those for people stand in the documentation."""
    sources = [repository / name for name in ("src", "workflow", "Snakefile", "tests", "envs")]
    files = [
        path for source in sources for path in (source.rglob("*") if source.is_dir() else [source])
    ]
    named = {
        word
        for path in files
        if path.suffix in (".py", ".smk", "") and path.is_file()
        for word in re.findall(r"(?<!_)DIFFTRANSFORMER_[A-Z_]+", path.read_text())
        if path != Path(__file__)
    }
    assert named == {f"DIFFTRANSFORMER_{name}" for name in environment._VARIABLES}
    page = (repository / "docs" / "reproducing.md").read_text()
    internal = {name for name in environment._VARIABLES if f"DIFFTRANSFORMER_{name}" not in page}
    assert internal == {"GPUS_RESERVED", "RENDEZVOUS", "SHARED_DATA"}


def test_variables_that_kubernetes_sets_for_a_service_of_our_name_are_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        *("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT"),
        *("PORT_5000_TCP_ADDR", "MLFLOW_SERVICE_HOST", "MLFLOW_PORT_80_UDP"),
    ):
        monkeypatch.setenv(f"DIFFTRANSFORMER_{name}", "10.0.0.1")
    check_variables()


def test_recorded_memory_is_the_peak_of_this_process() -> None:
    # In a process of its own: one that has run many tests has been larger before.
    code = (
        "from difftransformer.provenance.environment import capture\n"
        "peaks = [capture(1).peak_memory_gib]\n"
        "held = bytearray(b'x') * (300 << 20)\n"
        "peaks.append(capture(1).peak_memory_gib)\n"
        "del held\n"
        "print(*peaks, capture(1).peak_memory_gib)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    before, after, later = map(float, completed.stdout.split())
    assert 0.25 < after - before < 0.35
    assert later == pytest.approx(after, abs=0.02)
