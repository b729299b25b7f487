"""The software and hardware environment of a job: commit, versions, CPU, GPU, threads.

Takes some ten milliseconds and imports nothing heavy. Environment variables are not recorded, so
that no secret ends up in a result.
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
_PREFIX = "DIFFTRANSFORMER_"
_VARIABLES = (
    *("DISK", "FROM_SCRATCH", "GPUS_RESERVED", "JOBS_PER_GPU", "MATMUL", "RENDEZVOUS"),
    *("MEMORY_CHECK", "COLLECTIVE_TIMEOUT", "PROFILE_STEPS", "SHARED_DATA", "STATE", "WARM"),
)
"""Environment variables of this package without `_PREFIX`; docs/reproducing.md describes them."""
_KUBERNETES = re.compile(r"(?:.*_)?(?:SERVICE_(?:HOST|PORT.*)|PORT(?:_\d+_.*)?)")
"""Variables that Kubernetes sets in pods for services whose names have our prefix."""
_SWITCHES = {"MEMORY_CHECK": "off", "DISK": "passing", "WARM": "off"}
"""The only value that each of these variables may have; a path is also allowed."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MOST_THREADS = 4096
_CORES = os.cpu_count() or 1
_SOURCES = Path(__file__).resolve().parent
_GIT_LOCATIONS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


class Environment(Settings):
    """The software and hardware environment of a job, as recorded in its result."""

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
    """Validate the environment variables of this package and of the number of threads.

    Raises:
        ConfigError: A variable is unknown, or its value is not allowed.
    """
    for name in sorted(filter(lambda key: key.startswith(_PREFIX), os.environ)):
        value, short_name = os.environ[name], name.removeprefix(_PREFIX)
        if short_name not in _VARIABLES and not _KUBERNETES.fullmatch(short_name):
            nearest_name = next(iter(get_close_matches(short_name, _VARIABLES, n=1)), None)
            cure = f"did you mean '{_PREFIX}{nearest_name}'?" if nearest_name else "unset it"
            raise ConfigError(f"environment variable {name}: unknown, so it has no effect; {cure}")
        allowed = _SWITCHES.get(short_name)
        if allowed and value and value != allowed and "/" not in value:
            raise ConfigError(
                f"environment variable {name}: {value!r} is not allowed; set it to {allowed}, or "
                "unset it"
            )
    steps = os.environ.get(f"{_PREFIX}PROFILE_STEPS") or "0"
    if not steps.isdecimal():
        raise ConfigError(
            f"environment variable {_PREFIX}PROFILE_STEPS: {steps!r} is not a number; set it to "
            "a whole number, such as 5, or unset it"
        )
    for name in _THREAD_VARIABLES:
        value = os.environ.get(name, "").strip()
        if value and not (value.isdecimal() and 0 < int(value) <= _MOST_THREADS):
            raise ConfigError(
                f"environment variable {name}: {value!r} is not a number of threads; set it to a "
                "positive integer, such as 1, or unset it"
            )


def require_own_package(project: Path, package: Path = _SOURCES.parent) -> None:
    """Check that the imported package is the source in the given checkout.

    A ``.venv`` that was copied with its folder still imports the package from the first folder.

    Args:
        project: Folder of the checkout, with its Snakefile.
        package: Folder of the imported package.

    Raises:
        ConfigError: The package was imported from another checkout.
    """
    own, other = project.resolve() / "src" / package.name, package.resolve().parents[1]
    if own.is_dir() and own.parents[1] != other and (other / "Snakefile").is_file():
        raise ConfigError(
            f"{project}: its environment imports difftransformer from {other}, as a copied or "
            "moved .venv does, or PYTHONPATH; run `make install` here, or unset PYTHONPATH"
        )


def capture(threads: int) -> Environment:
    """Return the environment of this process.

    Args:
        threads: Number of threads per operation, which is recorded.
    """
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
    """Return the commit of the git checkout with ``folder``, and whether it has local changes.

    Returns ("unknown", None) without git, or if the checkout does not track ``folder``.
    """
    try:
        _git(folder, "ls-files", "--error-unmatch", ".")
        commit = _git(folder, "rev-parse", "HEAD").strip()
        return commit, bool(_git(folder, "status", "--porcelain").strip())
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN, None


def _git(folder: Path, *arguments: str) -> str:
    environment = {key: text for key, text in os.environ.items() if key not in _GIT_LOCATIONS}
    environment["GIT_OPTIONAL_LOCKS"] = "0"  # jobs run in parallel, so git must not lock the index
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
    """Return the versions of Python and of numeric packages; a missing package is "absent"."""
    installed = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            installed[package] = "absent"
    return installed


def _hardware() -> dict[str, str | int | float]:
    hardware: dict[str, str | int | float] = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _CORES,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }
    torch = sys.modules.get("torch")  # importing it here would take seconds
    if torch is not None and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        hardware["gpu"] = ", ".join(names)
        hardware["cuda"] = str(torch.version.cuda)
    return hardware


def _peak_memory_gib() -> float | None:
    """Return the peak memory of this process; None if the system does not report it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return round(float(torch.cuda.max_memory_allocated()) / 2**30, 3)
    try:
        # On Linux getrusage includes the parent process.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        kibibytes = float(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError, ValueError):
        if sys.platform != "darwin":
            return None
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # in bytes
    return round(kibibytes / 2**20, 3)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or UNKNOWN
