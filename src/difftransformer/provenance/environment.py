"""Where and with what a job ran: commit, versions, hardware, threads.

Cheap (tens of milliseconds), imports nothing heavy. Of the environment a result has the numbers of
threads alone, so that no secret can end up in one.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import subprocess
import sys
from difflib import get_close_matches
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import psutil
from pydantic import Field

from difftransformer.config.base import Settings
from difftransformer.errors import ConfigError

UNKNOWN = "unknown"
_PACKAGES = (
    *("difftransformer", "torch", "numpy", "transformers", "peft"),
    *("lm-eval", "math-verify", "tokenizers", "mlflow"),
)
_OWN = "DIFFTRANSFORMER_"
_KNOWN = (
    *("DISK", "FROM_SCRATCH", "GPUS_TAKEN", "JOBS_PER_GPU", "MATMUL", "RENDEZVOUS"),
    *("MEMORY_CHECK", "COLLECTIVE_TIMEOUT", "PROFILE_STEPS", "SHARED_DATA", "STATE", "WARM"),
)
"""Environment variables of ours behind that; docs/reproducing.md says what those for people do."""
_OF_KUBERNETES = re.compile(r"(?:.*_)?(?:SERVICE_(?:HOST|PORT.*)|PORT(?:_\d+_.*)?)")
"""Variables that Kubernetes sets in pods for services with our prefix in their names."""
_SWITCHES = {"MEMORY_CHECK": "off", "DISK": "passing", "WARM": "off"}
"""Those that have one value, or an address within a workflow."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MOST_THREADS = 4096
_CORES = os.cpu_count() or 1
_SOURCES = Path(__file__).resolve().parent
_GIT_LOCATIONS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


class Environment(Settings):
    """What a result records about the machine and the code that made it."""

    git_commit: str = Field(description='Commit of the source checkout, or "unknown"')
    git_dirty: bool | None = Field(description="Whether the checkout differs from its commit")
    versions: dict[str, str] = Field(description="Python and the packages that compute")
    hardware: dict[str, str | int | float] = Field(description="CPU, cores, memory, GPUs")
    threads: int = Field(description="Threads of one operation")
    peak_memory_gib: float | None = Field(
        default=None,
        description="Most memory so far: of its GPU where it has one in use, else resident",
    )


def check_variables() -> None:
    """Check names of environment variables of ours, switches, and numbers of threads.

    Raises:
        ConfigError: there is none of a name, or its value would be ignored in silence.
    """
    for name in sorted(one for one in os.environ if one.startswith(_OWN)):
        given, own = os.environ[name], name.removeprefix(_OWN)
        if own not in _KNOWN and not _OF_KUBERNETES.fullmatch(own):
            nearest_name = next(iter(get_close_matches(own, _KNOWN, n=1)), None)
            cure = f"did you mean '{_OWN}{nearest_name}'?" if nearest_name else "unset it"
            raise ConfigError(
                f"environment variable {name}: unknown, it would change nothing; {cure}"
            )
        known = _SWITCHES.get(own)
        if known and given and given != known and "/" not in given:
            raise ConfigError(
                f"environment variable {name}: {given!r} means nothing; set it to {known}, or "
                "unset it"
            )
    steps = os.environ.get(f"{_OWN}PROFILE_STEPS") or "0"
    if not steps.isdecimal():
        raise ConfigError(
            f"environment variable {_OWN}PROFILE_STEPS: {steps!r} is not a number; set it to "
            "a whole number, such as 5, or unset it"
        )
    for name in _THREAD_VARIABLES:
        given = os.environ.get(name, "").strip()
        if given and not (given.isdecimal() and 0 < int(given) <= _MOST_THREADS):
            raise ConfigError(
                f"environment variable {name}: {given!r} is no number of threads; set it to a "
                "whole number from 1, such as 1, or unset it"
            )


def require_own_package(project: Path, package: Path = _SOURCES.parent) -> None:
    """Check that a checkout runs the package of its own, not that of another checkout.

    A ``.venv`` that was copied with its folder still imports the package from the first folder.

    Args:
        project: Folder of the Snakefile.
        package: Folder of the package that was imported.

    Raises:
        ConfigError: The package belongs to another checkout.
    """
    own, other = project.resolve() / "src" / package.name, package.resolve().parents[1]
    if own.is_dir() and own.parents[1] != other and (other / "Snakefile").is_file():
        raise ConfigError(
            f"{project}: its environment imports difftransformer from {other}, as a copied or "
            "moved .venv does, or PYTHONPATH; run `make install` here, or unset PYTHONPATH"
        )


def capture(threads: int) -> Environment:
    """Describe this process, which was given so many threads."""
    commit, dirty = git_state()
    return Environment(
        git_commit=commit,
        git_dirty=dirty,
        versions=versions(),
        hardware=_hardware(),
        threads=threads,
        peak_memory_gib=_peak_memory_gib(),
    )


@lru_cache(maxsize=1)
def git_state(folder: Path = _SOURCES) -> tuple[str, bool | None]:
    """Commit and dirty flag of the checkout that ``folder`` is part of.

    ("unknown", None) without git, and where it merely lies in one, as what is installed does.
    """
    try:
        _git(folder, "ls-files", "--error-unmatch", ".")
        commit = _git(folder, "rev-parse", "HEAD").strip()
        return commit, bool(_git(folder, "status", "--porcelain").strip())
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN, None


def _git(folder: Path, *arguments: str) -> str:
    environment = {key: text for key, text in os.environ.items() if key not in _GIT_LOCATIONS}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # jobs run beside each other: never lock the index
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    ).stdout


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Of Python and the packages that compute; "absent" for one that is not installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def _hardware() -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _CORES,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }
    torch = sys.modules.get("torch")  # asking for it here would cost seconds
    if torch is not None and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        found["gpu"] = ", ".join(names)
        found["cuda"] = str(torch.version.cuda)
    return found


def _peak_memory_gib() -> float | None:
    """Of this process; None where the system does not tell."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return round(float(torch.cuda.max_memory_allocated()) / 2**30, 3)
    try:
        # What getrusage says on Linux holds the process that started this one, too.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        kibibytes = float(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        if sys.platform != "darwin":
            return None
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # bytes there
    return round(kibibytes / 2**20, 3)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux: the platform's word for it has to do
    return platform.processor() or UNKNOWN
