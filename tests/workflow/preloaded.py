"""Python processes that are forked from one which has imported libraries: seconds less for each.

Nothing of this package is among them, so a process has the sources that its folder and environment
give it; what libraries read when they are loaded (OMP_NUM_THREADS) is as it was at the first call.
What is tested for its imports or its memory starts as a process of its own.
"""

import atexit
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload(["snakemake.cli", "torch", "pydantic", "typer", "pandas"])


class Python:
    """A process that began as `python -m module ...` or `python -c code ...` would."""

    def __init__(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.words = words
        self._output_folder = TemporaryDirectory()
        self._written = [Path(self._output_folder.name, name) for name in ("stdout", "stderr")]
        folder, environment = str(cwd or Path.cwd()), dict(os.environ if env is None else env)
        self._process = _FORKING.Process(
            target=_become, args=(words, folder, environment, self._written)
        )
        self._process.start()

    def ended(self, timeout: float | None = None) -> "CompletedProcess[str]":
        """Wait for its end; what it wrote, and its status as of a `Popen`."""
        self._process.join(timeout)
        if (status := self._process.exitcode) is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"{self.words} ran on after {timeout} s")
        written = [path.read_text() if path.exists() else "" for path in self._written]
        self._output_folder.cleanup()
        return CompletedProcess(self.words, status, *written)


def python(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "CompletedProcess[str]":
    """Run `python words` to its end."""
    return Python(*words, cwd=cwd, env=env).ended()


def _become(
    words: Sequence[str], folder: str, environment: dict[str, str], written: list[Path]
) -> None:
    for number, path in enumerate(written, 1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    kind, what, *rest = words
    sys.argv = [what if kind == "-m" else kind, *rest]
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            assert kind == "-c", words
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()  # which a process of multiprocessing leaves out
