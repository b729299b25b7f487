"""Checks that a fork of the warm process behaves like a new process; see the module `warm`."""

import os
import sys
from contextlib import suppress

_SHELL_VARIABLES = {"_", "SHLVL", "PWD", "OLDPWD"}
"""Environment variables that do not affect imports, so they may differ between jobs."""
_INHERITED = (
    "Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp",
    "Cpus_allowed", "Mems_allowed",
)  # fmt: skip
"""Prefixes of the fields in /proc/self/status that a child process inherits."""
_GLIBC_SIGNALS = 1 << 31 | 1 << 32


def inherited_state() -> list[object]:
    """Return the state that a child process inherits, or that affects its imports.

    The values are comparable between processes: interpreter, folder, limits, namespaces,
    environment.
    """
    with open("/proc/self/status") as status, open("/proc/self/limits") as limits:
        inherited = [_without_glibc_signals(line) for line in status if line.startswith(_INHERITED)]
        limited = limits.read()
    with open("/proc/self/cgroup") as cgroup:
        group = cgroup.read()
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
    variables = sorted(pair for pair in os.environ.items() if pair[0] not in _SHELL_VARIABLES)
    return [
        sys.executable, sys.version, os.getcwd(), os.nice(0), inherited, limited, group, spaces,
        [list(pair) for pair in variables],
    ]  # fmt: skip


def _without_glibc_signals(line: str) -> str:
    """Return a line of /proc/self/status without signals 32 and 33, which glibc reserves.

    A child started by glibc's posix_spawn (used by Python 3.13) ignores these signals.
    """
    name, _, mask = line.partition(":")
    return f"{name}: {int(mask, 16) & ~_GLIBC_SIGNALS:x}" if name.startswith("Sig") else line


def module_stamps() -> list[tuple[str, int, int]]:
    """Return the path, modification time and size of the file of each imported module."""
    files = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    stamps = []
    for file in filter(None, files):
        with suppress(OSError):  # a module may come from an archive
            status = os.stat(file)
            stamps.append((file, status.st_mtime_ns, status.st_size))
    return sorted(stamps)


def may_fork() -> bool:
    """Return whether a fork loses nothing: no other thread runs, and no GPU is open."""
    opened = "/proc/self/fd"
    for number in os.listdir(opened):
        with suppress(FileNotFoundError):  # the descriptor of this listing
            if os.readlink(f"{opened}/{number}").startswith("/dev/nvidia"):
                return False
    return all(_survives_a_fork(thread) for thread in os.listdir("/proc/self/task"))


def _survives_a_fork(thread: str) -> bool:
    """Return whether a thread is the main one, or one of jemalloc, which handles forks."""
    if int(thread) == os.getpid():
        return True
    try:
        with open(f"/proc/self/task/{thread}/comm") as name:
            return name.read().strip() == "jemalloc_bg_thd"
    except OSError:  # the thread has just ended, so the next call may be forked
        return False
