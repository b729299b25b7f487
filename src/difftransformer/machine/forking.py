"""Whether a fork of the warm process does what a new process would, see `warm`."""

import os
import sys
from contextlib import suppress

_OF_THE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD"}
"""Variables that no import looks at; a job gets those of its call."""
_INHERITED = (
    "Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp",
    "Cpus_allowed", "Mems_allowed",
)  # fmt: skip
_OF_GLIBC = 1 << 31 | 1 << 32


def conditions() -> list[object]:
    """What a new process takes over from who starts it, or reads when it imports."""
    with open("/proc/self/status") as status, open("/proc/self/limits") as limits:
        inherited = [_of_programs(line) for line in status if line.startswith(_INHERITED)]
        limited = limits.read()
    with open("/proc/self/cgroup") as cgroup:
        group = cgroup.read()
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))]
    variables = sorted(pair for pair in os.environ.items() if pair[0] not in _OF_THE_SHELL)
    return [
        sys.executable, sys.version, os.getcwd(), os.nice(0), inherited, limited, group, spaces,
        [list(pair) for pair in variables],
    ]  # fmt: skip


def _of_programs(line: str) -> str:
    """Return a line of /proc/self/status without signals 32 and 33, which glibc reserves.

    posix_spawn of glibc, which Python 3.13 uses, makes the child ignore them.
    """
    name, _, mask = line.partition(":")
    return f"{name}: {int(mask, 16) & ~_OF_GLIBC:x}" if name.startswith("Sig") else line


def code() -> list[tuple[str, int, int]]:
    """The files of the code that this process has, as they are now."""
    files = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
    found = []
    for file in filter(None, files):
        with suppress(OSError):  # a module may come from an archive
            now = os.stat(file)
            found.append((file, now.st_mtime_ns, now.st_size))
    return sorted(found)


def may_fork() -> bool:
    """Whether a fork has all that there is here: no thread that it lacks, nothing of a card."""
    opened = "/proc/self/fd"
    for number in os.listdir(opened):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            if os.readlink(f"{opened}/{number}").startswith("/dev/nvidia"):
                return False
    return all(_survives_a_fork(thread) for thread in os.listdir("/proc/self/task"))


def _survives_a_fork(thread: str) -> bool:
    """Whether a thread is this one, or jemalloc's, which sees to forks by itself."""
    if int(thread) == os.getpid():
        return True
    try:
        with open(f"/proc/self/task/{thread}/comm") as name:
            return name.read().strip() == "jemalloc_bg_thd"
    except OSError:  # it has just ended: the next call may be forked
        return False
