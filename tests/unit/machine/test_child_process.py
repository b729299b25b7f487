"""Child processes: their results, exceptions, log records and exit."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from difftransformer.errors import BackendError, UserError
from difftransformer.machine.child_process import run_in_subprocess

NAME = "process 2 of 5"
STARTS = """
import os, signal, sys
from difftransformer.machine.child_process import run_in_subprocess

def stop(number, frame):  # as every job does
    raise SystemExit(128 + number)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored behind a shell, either
run_in_subprocess("it", exec, "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
"""


def test_it_has_nothing_of_this_process_but_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DIFFTRANSFORMER_GPUS_RESERVED", "3")
    monkeypatch.setattr(sys, "here_alone", True, raising=False)
    requested = (
        "(__import__('os').getpid(), __import__('os').environ['DIFFTRANSFORMER_GPUS_RESERVED'],"
    )
    requested += " hasattr(__import__('sys'), 'here_alone'))"
    first, second = (run_in_subprocess(NAME, eval, requested) for _ in range(2))
    assert len({os.getpid(), first[0], second[0]}) == 3
    assert first[1:] == second[1:] == ("3", False)


def test_exceptions_of_the_child_are_raised() -> None:
    raised = "from difftransformer.errors import BackendError; raise BackendError('no such GPU')"
    with pytest.raises(BackendError) as error:
        run_in_subprocess(NAME, exec, raised)
    assert str(error.value) == "no such GPU"
    assert 'File "<string>", line 1' in error.value.__notes__[0]


def test_filesystem_errors_name_their_files(tmp_path: Path) -> None:
    for code in (f"open('{tmp_path}/a')", f"__import__('os').replace('{tmp_path}/a', 'b')"):
        with pytest.raises(FileNotFoundError) as error:
            run_in_subprocess(NAME, exec, code)
        assert error.value.filename == f"{tmp_path}/a"
    assert error.value.filename2 == "b"


def test_an_error_that_cannot_be_handed_over_is_named() -> None:
    raised = "class Own(Exception): pass\nraise Own('two lines\\nof them')"
    with pytest.raises(RuntimeError) as error:
        run_in_subprocess(NAME, exec, raised, {})
    assert str(error.value) == "Own: two lines"


@pytest.mark.parametrize(
    ("ends", "output"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL, most likely out of memory: its"),
        ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV: its work is lost; start it again"),
        ("os._exit(3)", "ended with status 3 and no message: start it again"),
    ],
)
def test_killed_child_gives_one_error_line(ends: str, output: str) -> None:
    with pytest.raises(UserError) as error:
        run_in_subprocess(NAME, exec, f"import os; {ends}")
    line = str(error.value)
    assert line.startswith(f"{NAME} {output}") and "\n" not in line


def test_log_records_of_the_child_are_forwarded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "difftransformer")
    says = "import logging; log = logging.getLogger('difftransformer.there');"
    run_in_subprocess(NAME, exec, f"{says} log.debug('unheard'); log.info('%d tokens', 7)")
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("difftransformer.there", "7 tokens")
    ]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs Linux: /proc")
def test_child_processes_block_job_signals() -> None:
    """Not the first one that a process starts, either."""
    asks = "from difftransformer.machine.child_process import run_in_subprocess\n"
    read = "open('/proc/self/status').read()"
    asks += f'for _ in range(2): print(run_in_subprocess("it", eval, "{read}"))'
    output = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, check=True
    )
    blocked = [line for line in output.stdout.splitlines() if line.startswith("SigBlk:")]
    assert len(blocked) == 2
    for line in blocked:
        mask = int(line.split()[1], 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            assert mask >> (number - 1) & 1, number


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs Linux: /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("all_of_them", [False, True])
def test_child_ends_with_its_parent(how: signal.Signals, all_of_them: bool) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", STARTS],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert job.stdout is not None and job.stderr is not None
    process = int(job.stdout.readline())
    if all_of_them and how != signal.SIGKILL:
        os.killpg(job.pid, how)
    else:
        job.send_signal(how)
    output = job.stderr.read()  # until nobody is left who could write
    assert job.wait(10) == (128 + how if how == signal.SIGTERM else -how)
    assert output.count("Traceback") == (how == signal.SIGINT)  # that of `job`, whose it is to say
    limit = time.monotonic() + 10
    while Path(f"/proc/{process}").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    assert not Path(f"/proc/{process}").exists()
