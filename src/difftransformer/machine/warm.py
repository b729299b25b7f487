"""A fork server that has imported torch once ("warm process"), from which jobs are forked.

The Snakemake process starts the server. A job's process `difftransformer` sends its call to the
server through a socket, waits, and ends with the exit status of the forked job. A job is forked
only if a new process would have the same environment, limits, namespaces and code. Also, the server
must have no threads that a fork would lose, and no open GPU. Otherwise the call starts normally.

Each message is one packet: first the call with its standard streams, then numbers of signals to
pass on. The answer is the job's wait status. Each side asks the kernel whether the other side runs
as the same user, since another user may listen at a stale address. A closed socket means that the
other process has ended. If the caller has ended, its job is killed. If Snakemake has ended, the
server ends after its last job.
"""

import io
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import FrameType

from difftransformer.machine import forking

VARIABLE = "DIFFTRANSFORMER_WARM"
"""Environment variable with the socket that receives calls of jobs; `off` disables the server."""

COMMAND = "warm-process"
"""First command line argument of the process that is the server."""

_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_MAX_BYTES = 1 << 20
_IDLE_SECONDS = 0.2
"""Seconds without a call after which the server imports the next module of its list."""
_REFUSED = b"no"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl

_references: list[object] = []
"""Objects that must live as long as this process."""


def start(command: str, variables: Mapping[str, str], modules: Iterable[str] = ()) -> None:
    """Start a fork server that ends with this process, and set the variable with its socket.

    If the server cannot be started, for example outside of Linux, jobs start normally.

    Args:
        command: Path of the `difftransformer` command that jobs run.
        variables: Environment variables of jobs in addition to those of this process.
        modules: Modules that many jobs import, in addition to those that all jobs import.
    """
    import atexit
    import shutil
    import subprocess
    import tempfile

    if os.environ.get(VARIABLE) == "off" or not hasattr(os, "pidfd_open"):
        return
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="difftransformer-")  # not readable by others
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Bound now, so that the first jobs wait for the server's imports instead of importing.
        listener.bind(f"{folder}/jobs")
        listener.listen()
        os.environ[VARIABLE] = f"{folder}/jobs"
        process = subprocess.Popen(
            [command, COMMAND, str(listener.fileno()), *modules],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
            env=os.environ | variables, start_new_session=True,
        )  # fmt: skip
        listener.close()
        _references.append(process)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    except OSError:
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)


def hand_over() -> None:
    """Run this process's call in a job forked from the server, and exit with the job's status.

    Returns if there is no server, or if the server refuses the call.
    """
    address = os.environ.get(VARIABLE, "off")
    if address == "off" or not hasattr(socket, "SO_PEERCRED"):
        return
    passed: list[int] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:

        def pass_on(number: int, _frame: FrameType | None) -> None:
            passed.append(number)
            connection.send(bytes([number]))

        previous = {}
        answer = _REFUSED
        try:
            connection.connect(address)
            if _is_same_user(connection):
                call = json.dumps([sys.argv, dict(os.environ), forking.inherited_state()]).encode()
                # The call must be the first packet, so signals wait until the handlers are set.
                mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
                try:
                    socket.send_fds(connection, [call], [0, 1, 2])
                    previous = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                answer = connection.recv(len(_REFUSED) + 64)
            else:
                print(
                    f"warning: another user listens at {address}: not used; unset {VARIABLE}",
                    file=sys.stderr,
                )
        except OSError:
            pass
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
    if not answer:
        print(f"warning: the server at {address} has ended: starting again", file=sys.stderr)
    elif answer != _REFUSED:
        _end(int(answer))
    for signalled in passed:  # handle signals that no job has received
        os.kill(os.getpid(), signalled)


def _is_same_user(connection: socket.socket) -> bool:
    """Return whether the kernel reports that a socket's peer runs as the same user."""
    size = struct.calcsize("3i")  # process, user, group
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", peer)[1] == os.geteuid())


def _end(status: int) -> None:
    """End this process with the exit code or the signal that a wait status contains."""
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def serve(modules: Sequence[str]) -> None:
    """Run the fork server. Returns only in forked jobs, with the arguments and streams of the call.

    While no call waits, the server also imports the modules on its command line.

    Args:
        modules: Modules to import before the first job.
    """
    server = _Server(socket.socket(fileno=int(sys.argv[2])))
    for module in modules:
        import_module(module)
    server.run(", ".join(modules), sys.argv[3:])


class _Server:
    def __init__(self, listener: socket.socket) -> None:
        import selectors

        self._listener: socket.socket | None = listener
        self._folder = os.path.dirname(listener.getsockname())
        self._ready = selectors.DefaultSelector()
        self._read = selectors.EVENT_READ
        self._forks = True
        self._jobs: dict[int, tuple[int, socket.socket]] = {}
        """Process id and caller's connection of each job, by the job's pidfd."""
        self._ready.register(listener, self._read, self._accept)
        self._ready.register(sys.stdin.fileno(), self._read, self._retire)

    def run(self, imported: str, later: list[str]) -> None:
        """Answer calls until Snakemake and all jobs have ended; returns only in each forked job.

        Args:
            imported: Names of the modules imported so far, for a warning.
            later: Modules to import while no call waits.
        """
        self._state = forking.inherited_state()
        self._freeze(imported)
        while self._listener is not None or self._jobs:
            ready = self._ready.select(_IDLE_SECONDS if later else None)
            if not ready:
                module = later.pop(0)
                _import_quietly(module)
                self._freeze(module)
                continue
            key, _ = ready[0]  # one at a time: each may unregister others
            if key.data(key.fileobj):
                return
        os._exit(0)

    def _freeze(self, imported: str) -> None:
        """Prepare the present state of this process to be forked."""
        import gc

        if self._forks and not forking.may_fork():
            self._forks = False
            print(
                f"warning: {imported} left a thread or opened a GPU: no job is forked",
                file=sys.stderr,
            )
        gc.collect()
        gc.freeze()  # forked jobs then share the memory pages of these objects
        self._modules = forking.module_stamps()

    def _accept(self, listener: socket.socket) -> bool:
        connection, _ = listener.accept()
        if not _is_same_user(connection):
            with suppress(OSError), connection:
                connection.send(_REFUSED)
            return False
        self._ready.register(connection, self._read, self._answer)
        return False

    def _retire(self, stdin: int) -> bool:
        import shutil

        self._ready.unregister(stdin)
        if self._listener is not None:
            self._ready.unregister(self._listener)
            self._listener.close()
            self._listener = None
        shutil.rmtree(self._folder, ignore_errors=True)
        return False

    def _answer(self, connection: socket.socket) -> bool:
        """Fork a job for a call, or refuse the call; return True in the forked job."""
        self._ready.unregister(connection)
        packet, streams, _, _ = socket.recv_fds(connection, _MAX_BYTES, 3)
        words, variables, state = json.loads(packet) if packet else ([], {}, None)
        server, job = os.getpid(), None
        unchanged = state == self._state and forking.module_stamps() == self._modules
        if unchanged and forking.may_fork():
            with suppress(OSError):  # no memory for a fork: the caller runs by itself
                job = os.fork()
            if job == 0:
                self._close()
                connection.close()
                _become(server, words, variables, streams)
                return True
        for stream in streams:
            os.close(stream)
        if job is None:
            with suppress(OSError), connection:
                connection.send(_REFUSED)
            return False
        with suppress(OSError):
            os.setpgid(job, job)
        ended = os.pidfd_open(job)
        self._jobs[ended] = job, connection
        self._ready.register(ended, self._read, self._finish)
        self._ready.register(connection, self._read, partial(self._pass_on, job))
        return False

    def _pass_on(self, job: int, connection: socket.socket) -> bool:
        """Pass a signal on to a job, or kill the job's processes if its caller has ended."""
        number = b""
        with suppress(OSError):
            number = connection.recv(1)
        if number:
            os.kill(job, number[0])
        else:
            self._ready.unregister(connection)
            os.killpg(job, signal.SIGKILL)
        return False

    def _finish(self, ended: int) -> bool:
        job, connection = self._jobs.pop(ended)
        self._ready.unregister(ended)
        os.close(ended)
        _, status = os.waitpid(job, 0)
        if connection in self._ready.get_map():
            self._ready.unregister(connection)
        with suppress(OSError), connection:
            connection.send(str(status).encode())
        return False

    def _close(self) -> None:
        """Close the descriptors of the server in a forked job."""
        for key in list(self._ready.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif key.fd in self._jobs:
                os.close(key.fd)
        self._ready.close()


def _import_quietly(module: str) -> None:
    """Import a module for later jobs without any messages, since jobs report errors themselves."""
    import logging
    import warnings

    logging.disable()
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        import_module(module)
    logging.disable(logging.NOTSET)


def _become(
    server: int, words: list[str], variables: dict[str, str], streams: Iterable[int]
) -> None:
    """Give a forked process the arguments, environment and streams of a call.

    The process dies with the server.
    """
    import ctypes

    with suppress(OSError):
        os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv[:] = words
    os.environ.clear()
    os.environ.update(variables)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(line_buffering=output is sys.stderr or output.isatty())
    if "numpy.random" in sys.modules:  # the module `random` reseeds itself after a fork
        sys.modules["numpy.random"].seed()
