"""A PostgreSQL in a folder of its own, on loopback, that can be stopped, frozen and started."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from outages import free_port

USER = "team"
_FOLDERS = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
"""Where Debian keeps what is not for the `PATH`."""


def missing() -> str | None:
    """Say in one line what is missing and how to get it."""
    lacking = [name for name in ("initdb", "postgres", "createdb") if _program(name) is None]
    if lacking:
        return f"no {', '.join(lacking)}: apt-get install postgresql (or your system's package)"
    return None


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), *_FOLDERS]))


def _not_root() -> str | None:
    """The user that PostgreSQL runs as where we are root, which it refuses; None: who we are."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise AssertionError("PostgreSQL does not run as root, and there is no user `nobody`")


class Postgres:
    """The running server; all its processes end with the block.

    Attributes:
        port: Where it listens on loopback.
    """

    def __init__(self, folder: Path, password: str) -> None:
        self.folder, self.port = folder, free_port()
        self._password, self._user = password, _not_root()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        first = self.folder / "password"
        first.write_text(self._password)
        if self._user:
            for path in (self.folder, first):
                shutil.chown(path, self._user)
        words = ["--pgdata", str(self.folder / "data"), "--username", USER, "--no-sync"]
        words += ["--auth", "scram-sha-256", "--pwfile", str(first)]
        self._call("initdb", *words, "--encoding", "UTF8", "--locale", "C")
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.thaw()
            self.stop()

    def address(self, database: str, user: str = USER) -> str:
        """Give the address of a database, without the password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Make a database; return its address."""
        where = ("--host", "127.0.0.1", "--port", str(self.port), "--username", USER)
        self._call("createdb", *where, database)
        return self.address(database)

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        words = ["-D", str(self.folder / "data"), "-p", str(self.port)]
        words += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_program("postgres")), *words], cwd=self.folder, user=self._user,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        ready = f"port {self.port} failed"
        while ready:
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL does not start"
            where = ("-h", "127.0.0.1", "-p", str(self.port), "-q")
            with suppress(subprocess.CalledProcessError):
                self._call("pg_isready", *where)
                ready = ""
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, as a crash does; what it has said to be written stays."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        self._process = None

    def freeze(self) -> None:
        """Let it hold its connections and answer nothing, as a host that hangs."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        main = psutil.Process(self._process.pid)
        for process in (main, *main.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _call(self, name: str, *words: str) -> None:
        subprocess.run(
            [str(_program(name)), *words], cwd=self.folder, user=self._user, check=True,
            stdout=subprocess.DEVNULL, env=os.environ | {"PGPASSWORD": self._password}, timeout=60,
        )  # fmt: skip
