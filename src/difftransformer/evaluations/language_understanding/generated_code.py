"""Run model-generated programs with resource limits. This is not a sandbox.

A program runs as the user who evaluates: it can read that user's files and use the network. It does
not get the environment, with its keys and tokens, or the working directory of the job. Time, memory
and disk are limited, and the process group is killed when the program ends.
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
"""CPU seconds of a program; `code_eval` of the Hugging Face hub has this limit of wall time."""
WALL_SECONDS = 15.0
"""Seconds of wall time of a program, including the start of Python on a busy machine."""
MEMORY = 1 << 31
"""Maximum address space of a program in bytes."""
FILE_BYTES = 1 << 24
"""Largest file that a program may write, in bytes."""
_PASSED = 77
"""Exit status of a program that ran to its end; any other status is a failure."""
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
    """Return whether a Python program ends without an error, within the limits of this module."""
    with TemporaryDirectory(prefix="generated-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "program.py")
        path.write_text(program, encoding="utf-8", errors="surrogatepass")
        started = subprocess.Popen(
            # -I: no PYTHON* variables, no user site-packages, no working directory on sys.path.
            [sys.executable, "-I", "-B", "-c", _RUNNER],
            cwd=folder,
            env={
                "PATH": os.defpath,
                "HOME": folder,
                "TMPDIR": folder,
                "LANG": "C.UTF-8",
                "OMP_NUM_THREADS": "1",  # threads count as processes for RLIMIT_NPROC
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
            with suppress(ProcessLookupError):  # the group is gone if all have ended
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()


class CodeChecker:
    """Replacement for `evaluate.load("code_eval")`, whose code comes from the hub unpinned.

    `code_eval` also runs programs in a fork of this process, with its environment variables.
    """

    def compute(
        self, references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int]
    ) -> tuple[dict[str, float], dict[int, list[bool]]]:
        """Return pass@1 (mean over tasks), and by task index whether each program passed.

        Args:
            references: Tests of each task, as Python code.
            predictions: Model-generated programs for each task.
            k: Always [1].
        """
        assert list(k) == [1], k
        passed = {
            number: [passes(f"{program}\n{test}") for program in programs]
            for number, (programs, test) in enumerate(zip(predictions, references, strict=True))
        }
        shares = [sum(results) / len(results) for results in passed.values()]
        return {"pass@1": sum(shares) / len(shares)}, passed
