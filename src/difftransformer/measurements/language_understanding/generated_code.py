"""Running the programs that a model wrote, with limits. This is not a sandbox.

A program runs as the user who evaluates: it can read that user's files and use the network. What it
does not get is the environment with its keys and tokens, the folder of the job, more time, memory
or disk than the limits, or processes that outlive it in its process group.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 3
"""Processor time of a program; `code_eval` of the Hugging Face hub gives it as much time in all."""
WALL_SECONDS = 15.0
"""Time until it is stopped, whatever it waits for; with the start of Python on a busy machine."""
MEMORY = 1 << 31
"""Bytes of address space."""
FILE_BYTES = 1 << 24
"""Bytes of a file that it writes."""
_PASSED = 77
"""Exit status of a program that ran to its end. Another says that it raised or ended by itself."""
_RUNNER = f"""
import os, resource, sys
for name, most in {{
    "RLIMIT_CPU": {SECONDS}, "RLIMIT_AS": {MEMORY}, "RLIMIT_FSIZE": {FILE_BYTES},
    "RLIMIT_NPROC": 0, "RLIMIT_NOFILE": 64, "RLIMIT_CORE": 0,
}}.items():
    resource.setrlimit(getattr(resource, name), (most, most))
with open("program.py", encoding="utf-8", errors="surrogatepass") as file:
    program = file.read()
exec(program, {{}})
os._exit({_PASSED})
"""


def passes(program: str) -> bool:
    """Whether a program of Python runs to its end without an error, within the limits."""
    with TemporaryDirectory(prefix="generated-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "program.py")
        path.write_text(program, encoding="utf-8", errors="surrogatepass")
        started = subprocess.Popen(
            # -I: no PYTHON* variables, no packages of the user's, not the folder itself.
            [sys.executable, "-I", "-B", "-c", _RUNNER],
            cwd=folder,
            env={
                "PATH": os.defpath,
                "HOME": folder,
                "TMPDIR": folder,
                "LANG": "C.UTF-8",
                "OMP_NUM_THREADS": "1",  # it may start no thread
                "OPENBLAS_NUM_THREADS": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return started.wait(WALL_SECONDS) == _PASSED
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):  # the whole group, if the program itself has ended
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


class CodeChecker:
    """Takes the place of `evaluate.load("code_eval")`, whose code comes from the hub unpinned.

    That one runs programs with the whole environment, in a copy of this process.
    """

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int]
    ) -> tuple[dict[str, float], dict[int, list[bool]]]:
        """Return pass@1, the mean over all programs, and by the number of the task who passed.

        Args:
            references: Tests of each task, as Python.
            predictions: Programs for each task.
            k: [1], no other is asked for.
        """
        assert list(k) == [1], k
        passed = {
            number: [passes(f"{program}\n{test}") for program in programs]
            for number, (programs, test) in enumerate(zip(predictions, references, strict=True))
        }
        shares = [sum(one) / len(one) for one in passed.values()]
        return {"pass@1": sum(shares) / len(shares)}, passed
