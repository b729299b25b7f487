"""A process that has imported torch once, and from which jobs on this machine are forked.

The head of a workflow starts it. `difftransformer` then hands its call over by a socket, waits, and
ends as the job ended. Nothing changes but the start: a job is forked where a new process would have
had the same environment, limits, namespaces and code, and from a process without threads that a
fork would lose, which has asked no card for anything. Every other call starts as if this were not
here.

A message is one packet: the call with its standard streams, then numbers of signals to pass on;
back comes the job's wait status. Each side asks the kernel whether the other runs as the same user,
since another user may listen at a stale address. Each side knows the end of another
by its socket: that of who called kills the job, that of the head ends the warm process as soon as
it has no job.
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
"""The socket for jobs to hand their calls to; `off`, said by a user: none."""

COMMAND = "warm-process"
"""First word of the call by which the head starts one."""

_PASSED_ON = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_LONGEST = 1 << 20
_IDLE = 0.2
"""Seconds without a call after which there is time to import."""
_REFUSED = b"no"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl

_kept: list[object] = []
"""What lives as long as the head."""


def start(command: str, variables: Mapping[str, str], modules: Iterable[str] = ()) -> None:
    """Start a warm process that ends with this one, the head, and name its socket to jobs.

    Where it cannot be had, on a system other than Linux, say, jobs start as they always do.

    Args:
        command: `difftransformer`, as jobs call it.
        variables: Of the environment of jobs, beside those of the head.
        modules: What many jobs import beside what all do.
    """
    import atexit
    import shutil
    import subprocess
    import tempfile

    if os.environ.get(VARIABLE) == "off" or not hasattr(os, "pidfd_open"):
        return
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="difftransformer-")  # nobody else may look into it
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # There from the first job on, which waits for the imports instead of doing its own.
        listener.bind(f"{folder}/jobs")
        listener.listen()
        os.environ[VARIABLE] = f"{folder}/jobs"
        process = subprocess.Popen(
            [command, COMMAND, str(listener.fileno()), *modules],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
            env=os.environ | variables, start_new_session=True,
        )  # fmt: skip
        listener.close()
        _kept.append(process)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    except OSError:
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(folder, ignore_errors=True)


def hand_over() -> None:
    """Have this process's call done by a job of the warm process, if there is one that can.

    Ends this process as the job ended; otherwise returns.
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
            if _is_own(connection):
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
        print(f"warning: what {address} belongs to has ended: starting again", file=sys.stderr)
    elif answer != _REFUSED:
        _end(int(answer))
    for signalled in passed:  # no job has it: it is this process's own
        os.kill(os.getpid(), signalled)


def _is_own(connection: socket.socket) -> bool:
    """Whether the peer of a socket runs as the same user, according to the kernel."""
    size = struct.calcsize("3i")  # process, user, group
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack("3i", peer)[1] == os.geteuid())


def _end(status: int) -> None:
    """End this process as the one of a wait status ended."""
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def serve(modules: Sequence[str]) -> None:
    """Be the warm process; returns in each job, whose call and streams are this process's then.

    What the head has named beside these is imported when no call waits for an answer.

    Args:
        modules: What to import before the first job.
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
        """By the descriptor that tells of a job's end: its process and who waits for it."""
        self._ready.register(listener, self._read, self._accept)
        self._ready.register(sys.stdin.fileno(), self._read, self._retire)

    def run(self, imported: str, later: list[str]) -> None:
        """Answer calls until the head has ended and no job runs; returns in each job alone.

        Between calls the modules of ``later`` are imported.
        """
        self._state = forking.inherited_state()
        self._share(imported)
        while self._listener is not None or self._jobs:
            ready = self._ready.select(_IDLE if later else None)
            if not ready:
                module = later.pop(0)
                _import_quietly(module)
                self._share(module)
                continue
            key, _ = ready[0]  # one by one: each may unregister others
            if key.data(key.fileobj):
                return
        os._exit(0)

    def _share(self, imported: str) -> None:
        """Take what there is now for what jobs get."""
        import gc

        if self._forks and not forking.may_fork():
            self._forks = False
            print(f"warning: {imported} left a thread or card: no job is forked", file=sys.stderr)
        gc.collect()
        gc.freeze()  # jobs shall not write to the pages of what is shared
        self._modules = forking.module_stamps()

    def _accept(self, listener: socket.socket) -> bool:
        connection, _ = listener.accept()
        if not _is_own(connection):
            with suppress(OSError), connection:
                connection.send(_REFUSED)
            return False
        self._ready.register(connection, self._read, self._answer)
        return False

    def _retire(self, head: int) -> bool:
        import shutil

        self._ready.unregister(head)
        if self._listener is not None:
            self._ready.unregister(self._listener)
            self._listener.close()
            self._listener = None
        shutil.rmtree(self._folder, ignore_errors=True)
        return False

    def _answer(self, connection: socket.socket) -> bool:
        """Fork a job for a call that has come, or refuse it; True in the job."""
        self._ready.unregister(connection)
        packet, streams, _, _ = socket.recv_fds(connection, _LONGEST, 3)
        words, variables, state = json.loads(packet) if packet else ([], {}, None)
        server, job = os.getpid(), None
        unchanged = state == self._state and forking.module_stamps() == self._modules
        if unchanged and forking.may_fork():
            with suppress(OSError):  # no room for one more: the call fails by itself, if it does
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
        """Pass on a signal, or kill all processes of a job that nobody waits for any more."""
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
        """Let go of everything, in a job."""
        for key in list(self._ready.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif key.fd in self._jobs:
                os.close(key.fd)
        self._ready.close()


def _import_quietly(module: str) -> None:
    """Import for jobs that will; what is wrong with it they will say themselves."""
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
    """Make a forked process what a new one would be for this call; it dies with the server."""
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
    for written in (sys.stdout, sys.stderr):
        if isinstance(written, io.TextIOWrapper):
            written.reconfigure(line_buffering=written is sys.stderr or written.isatty())
    if "numpy.random" in sys.modules:  # as `random` does by itself
        sys.modules["numpy.random"].seed()
