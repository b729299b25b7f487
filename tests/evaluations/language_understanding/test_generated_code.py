"""Generated programs run with limits of resources and access."""

import os
import resource
import time
from pathlib import Path

import pytest

from difftransformer.evaluations.language_understanding import generated_code
from difftransformer.evaluations.language_understanding.generated_code import CodeChecker, passes


def test_a_program_passes_if_it_runs_to_its_end() -> None:
    right, wrong = "def add(a, b): return a + b", "def add(a, b): return a * b"
    arguments = {"references": ["assert add(2, 3) == 5"] * 2, "k": [1]}
    result = CodeChecker().compute(predictions=[[right], [wrong]], **arguments)
    assert result == ({"pass@1": 0.5}, {0: [True], 1: [False]})


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(0)",  # before its test is reached
        "import os; os._exit(0)",
        "raise KeyboardInterrupt",
        "not Python",
        "if True:\n    input()",  # there is nobody to ask
        "'\ud800' * 2; assert False",
        f"block = bytearray({generated_code.MEMORY})",
        f"with open('x', 'wb') as file: file.write(bytes({generated_code.FILE_BYTES + 1}))",
    ],
)
def test_a_program_that_fails_or_ends_early_does_not_pass(program: str) -> None:
    assert not passes(program)


def test_an_endless_program_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_code, "WALL_SECONDS", 1.0)
    assert not passes("import time\ntime.sleep(10_000)")
    assert not passes("while True: pass")


def test_resource_limits_are_set(tmp_path: Path) -> None:
    limits = {
        "RLIMIT_CPU": generated_code.SECONDS,
        "RLIMIT_AS": generated_code.MEMORY,
        "RLIMIT_FSIZE": generated_code.FILE_BYTES,
        "RLIMIT_NPROC": 0,
    }
    tests = "\n".join(
        f"assert resource.getrlimit(resource.{name}) == ({most}, {most})"
        for name, most in limits.items()
    )
    assert passes(f"import resource\n{tests}")
    assert resource.getrlimit(resource.RLIMIT_NPROC)[0] != 0  # of the program alone


def test_a_program_sees_neither_environment_nor_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("")
    allowed = {
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "LC_CTYPE",
    }
    assert passes(
        f"import os\nassert set(os.environ) <= {allowed}, os.environ\n"
        f"assert os.getcwd() == os.environ['HOME'] != {str(tmp_path)!r}\n"
        "open('written', 'w').write('x')"
    )
    assert not passes("import mine")
    assert {path.name for path in tmp_path.iterdir()} == {"mine.py"}


def test_child_processes_are_killed_with_the_program(tmp_path: Path) -> None:
    """RLIMIT_NPROC does not bind root, so the process group is killed."""
    record = tmp_path / "pid"
    program = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        f"    open({str(record)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(10_000)\n"
        f"while not os.path.exists({str(record)!r}): time.sleep(0.01)\n"
    )
    assert passes(program) == (os.getuid() == 0)
    if not record.exists():
        return
    pid = int(record.read_text())
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} runs on")
