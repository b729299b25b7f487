"""A command that does what its first word says, real processes that fork it, and their ends."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from difftransformer.machine import warm

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: pidfd")

COMMAND = f"""#!{sys.executable}
import os, sys
from difftransformer.machine import warm
import ours
if os.environ.get("CLAIMS") == ("server" if sys.argv[1:2] == [warm.COMMAND] else "client"):
    os.geteuid = lambda: 12345
if sys.argv[1:2] == [warm.COMMAND]:
    warm.serve([os.environ.get("IMPORTED", "decimal")])
else:
    warm.hand_over()
how = "warm" if warm.COMMAND in sys.orig_argv else "cold"
exec(sys.argv[1])
"""
THREADS_OF_THE_WARM_PROCESS = """
import os
threads = f"/proc/{os.getppid()}/task"
print(*(open(f"{threads}/{one}/comm").read().strip() for one in os.listdir(threads)))
"""
HEAD = """
import os, sys
from difftransformer.machine import warm
warm.start(sys.argv[1], {}, sys.argv[2:])
print(os.environ.get(warm.VARIABLE, "none"), flush=True)
sys.stdin.read()
"""
SAY = "print(how)"
WAIT = "import time; print(os.getpid(), flush=True); time.sleep(60)"


class Warm:
    """A head, its warm process, and calls."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self.command = folder / "bin" / "command"
        self.command.parent.mkdir()
        self.command.write_text(COMMAND)
        self.command.chmod(0o755)
        (self.command.parent / "ours.py").write_text("")
        self.variables = {**os.environ, "TMPDIR": str(folder)}
        self.head = subprocess.Popen(
            [sys.executable, "-c", HEAD, self.command, *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.variables,
        )  # fmt: skip
        assert self.head.stdout is not None
        self.address = self.head.stdout.readline().strip()
        assert self.address != "none"
        self.variables[warm.VARIABLE] = self.address

    def begin(self, does: str, before: str = "", **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-c", f'{before} exec "$0" "$@"', self.command, does, "a word"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.variables | variables,
        )  # fmt: skip

    def call(self, does: str, before: str = "", **variables: str) -> tuple[int, str]:
        process = self.begin(does, before, **variables)
        message, _ = process.communicate(timeout=60)
        return process.returncode, message.strip()


@pytest.fixture
def folder() -> Iterator[Path]:
    # The path of a socket has 107 bytes at most, and pytest's folders may take nearly all of them.
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def it(folder: Path) -> Iterator[Warm]:
    started = Warm(folder)
    yield started
    started.head.communicate()  # which ends its input, and it
    until(lambda: not Path(started.address).parent.exists())


def until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("never came")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may go while its file is read
        return True


def first_line(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_job_has_its_own_words_streams_and_nothing_of_the_job_before(it: Warm) -> None:
    assert it.call("os.environ['MARK'] = 'x'; os.chdir('/'); print(how, sys.argv[2])") == (
        0, "warm a word",
    )  # fmt: skip
    assert it.call("print(how, os.getcwd(), 'MARK' in os.environ)") == (
        0, f"warm {Path.cwd()} False",
    )  # fmt: skip
    process = it.begin("print(input(), 'decimal' in sys.modules); print('!', file=sys.stderr)")
    assert process.communicate("read\n", timeout=60) == ("read True\n", "!\n")
    assert Path(it.address).parent.stat().st_mode & 0o777 == 0o700


def test_a_job_has_no_descriptor_but_its_streams(it: Warm) -> None:
    waiting = it.begin(WAIT)
    first_line(waiting)
    assert it.call("print(how, sorted(map(int, os.listdir('/proc/self/fd')))[:-1])") == (
        0, "warm [0, 1, 2]",
    )  # fmt: skip
    waiting.kill()
    waiting.communicate()


def test_random_numbers_differ_from_job_to_job(it: Warm) -> None:
    lines = {it.call("import random; print(how, random.random())")[1] for _ in range(3)}
    assert len(lines) == 3
    assert all(line.startswith("warm") for line in lines)


@pytest.mark.parametrize(
    ("does", "status"),
    [
        ("sys.exit(2)", 2),
        ("sys.exit(75)", 75),
        ("1 / 0", 1),
        ("raise SystemExit(130)", 130),
        ("os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("os.kill(os.getpid(), 11)", -signal.SIGSEGV),
        ("import atexit; atexit.register(print, 'bye'); sys.exit(3)", 3),
    ],
)
def test_a_call_ends_as_its_job_and_as_without_a_warm_process(
    it: Warm, does: str, status: int
) -> None:
    there = it.call(f"assert how == 'warm'; {does}")
    assert there == it.call(does, **{warm.VARIABLE: "off"})
    assert there[0] == status


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGQUIT]
)
def test_signals_reach_the_job(it: Warm, number: int) -> None:
    heard = (
        "import signal, time\n"
        f"signal.signal({int(number)}, lambda n, _: sys.exit(100 + n))\n"
        "print(os.getpid(), flush=True)\ntime.sleep(60)"
    )
    process = it.begin(heard)
    first_line(process)
    process.send_signal(number)
    assert process.wait(60) == 100 + number
    process.communicate()


def test_a_job_dies_with_who_waits_for_it_and_so_do_its_children(it: Warm) -> None:
    process = it.begin(
        "import time\nif child := os.fork(): print(os.getpid(), child, flush=True)\ntime.sleep(60)"
    )
    assert process.stdout is not None
    jobs = [*map(int, process.stdout.readline().split())]
    process.kill()
    until(lambda: all(map(gone, jobs)))  # before their streams end, which they would by themselves
    process.communicate()
    assert it.call(SAY) == (0, "warm")


def test_two_jobs_run_at_once(it: Warm) -> None:
    running = it.begin(WAIT)
    first_line(running)
    assert it.call(SAY) == (0, "warm")
    assert running.poll() is None
    running.terminate()
    assert running.wait(60) == -signal.SIGTERM
    running.communicate()


def test_a_job_whose_warm_process_is_killed_starts_again_by_itself(it: Warm) -> None:
    process = it.begin(
        "print(os.getpid(), os.getppid(), flush=True)\n"
        "if how == 'warm': import time; time.sleep(60)"
    )
    assert process.stdout is not None
    job, server = map(int, process.stdout.readline().split())
    os.kill(server, signal.SIGKILL)
    _, warned = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "starting again" in warned
    assert gone(job)
    assert it.call(SAY) == (0, "cold")


def test_the_head_takes_the_warm_process_with_it_but_no_job(it: Warm) -> None:
    process = it.begin("import time; print(os.getppid(), flush=True); time.sleep(1); sys.exit(5)")
    server = first_line(process)
    it.head.kill()
    assert process.wait(60) == 5
    process.communicate()
    until(lambda: gone(server))
    assert it.call(SAY) == (0, "cold")


@pytest.mark.parametrize(
    "before", ["export OMP_NUM_THREADS=3;", "umask 077;", "ulimit -n 99;", "cd /;", "trap '' USR1;"]
)
def test_what_a_new_process_would_have_otherwise_starts_one(it: Warm, before: str) -> None:
    assert it.call(SAY) == (0, "warm")
    assert it.call(SAY, before) == (0, "cold")


def test_a_call_that_posix_spawn_starts_is_as_warm(it: Warm) -> None:
    """Python 3.13 starts processes by posix_spawn, whose child ignores two glibc signals."""
    for how in ("warm", "cold"):
        reader, writer = os.pipe()
        spawned = os.posix_spawn(
            it.command, [str(it.command), SAY], it.variables,
            file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)],
            setsigmask=[signal.SIGUSR1] if how == "cold" else [],
        )  # fmt: skip
        os.close(writer)
        assert os.waitpid(spawned, 0)[1] == 0
        with os.fdopen(reader) as output:
            assert output.read() == f"{how}\n"


def test_code_that_has_changed_since_is_not_forked(it: Warm) -> None:
    assert it.call(SAY) == (0, "warm")
    (it.command.parent / "ours.py").write_text("new = True")
    assert it.call(f"ours.new; {SAY}") == (0, "cold")


def test_what_many_jobs_import_is_imported_between_them(folder: Path) -> None:
    started = Warm(folder, "fractions", "no_such_module", "statistics")
    there = "print(how, 'statistics' in sys.modules and 'fractions' in sys.modules)"
    for _ in range(20):
        time.sleep(1)  # calls without a pause leave no time to import
        if started.call(there) == (0, "warm True"):
            break
    assert started.call(there) == (0, "warm True")
    assert started.call(f"import statistics; {SAY}") == (0, "warm")
    started.head.kill()
    started.head.communicate()


def test_threads_are_not_forked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "modules").mkdir()
    (folder / "modules" / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(folder / "modules"))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")  # numpy, which pyarrow imports
    # pyarrow has a thread as well, of jemalloc, which sees to forks by itself.
    for module, how in (("decimal", "warm"), ("threaded", "cold"), ("pyarrow", "warm")):
        monkeypatch.setenv("IMPORTED", module)
        (folder / module).mkdir()
        started = Warm(folder / module)
        assert started.call(SAY) == (0, how)
        if module == "pyarrow":
            assert "jemalloc_bg_thd" in started.call(THREADS_OF_THE_WARM_PROCESS)[1]
        started.head.kill()
        started.head.communicate()
        message = f"warning: {module} left a thread or opened a GPU: no job is forked\n" * (
            how == "cold"
        )
        assert capfd.readouterr().err == message


def test_an_address_at_which_another_user_listens_gets_nothing_and_decides_nothing(
    folder: Path,
) -> None:
    """The listener is of another user where this is root; elsewhere the call says that it is."""
    command = folder / "command"
    command.write_text(COMMAND)
    command.chmod(0o755)
    (folder / "ours.py").write_text("")
    heard, expected_text = os.pipe()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / "jobs"))
    if (stranger := os.fork()) == 0:
        with suppress(OSError):  # who has heard enough is gone
            if os.geteuid() == 0:
                os.setuid(65534)
            listener.listen()
            os.write(expected_text, b"listens")
            connection, _ = listener.accept()
            os.write(expected_text, connection.recv(1 << 20)[:99] or b"nothing")
            connection.send(b"0")
        os._exit(0)
    assert os.read(heard, 99) == b"listens"
    claims = {} if os.geteuid() == 0 else {"CLAIMS": "client"}
    ended = subprocess.run(
        [command, SAY], capture_output=True, text=True, check=False,
        env={**os.environ, **claims, warm.VARIABLE: str(folder / "jobs")},
    )  # fmt: skip
    assert os.read(heard, 99) == b"nothing"
    os.waitpid(stranger, 0)
    listener.close()
    for end in (heard, expected_text):
        os.close(end)
    assert (ended.returncode, ended.stdout.strip()) == (0, "cold")
    assert ended.stderr.startswith(f"warning: another user listens at {folder / 'jobs'}")


def test_calls_of_another_user_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAIMS", "server")  # of itself, so that whoever calls is another
    started = Warm(folder)
    assert started.call(SAY) == (0, "cold")
    started.head.kill()
    started.head.communicate()


def test_off_starts_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warm.VARIABLE, "off")
    started = Warm(folder)
    assert started.address == "off"
    assert started.call(SAY) == (0, "cold")
    started.head.kill()
    started.head.communicate()
