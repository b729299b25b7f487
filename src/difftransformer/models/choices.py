"""Which of several ways to the same numbers this processor takes: measured once, then kept.

The libraries that multiply matrices differ by a factor of two, in either direction, from one
processor to the next, so no table in git serves all machines. Each choice is measured at its first
use, in a fraction of a second, and kept on disk under the processor's name; no time is taken after
that, so what a job computes does not depend on how busy its machine is. The bits of a result depend
on the ways: they are recorded in it and in each checkpoint.
"""

import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from difftransformer.config.validation import nearest
from difftransformer.errors import ConfigError
from difftransformer.machine.locks import open_lock, wait_for_lock
from difftransformer.provenance.atomic import write_text

FORCED = "DIFFTRANSFORMER_ARITHMETIC"
"""Environment: ``assumed``, or ways such as ``products=torch,attention=sdpa``; what is not named is
as assumed then. Nothing is measured or read."""
FOLDER = "DIFFTRANSFORMER_CACHE"
"""Environment: folder of what was measured; else difftransformer in $XDG_CACHE_HOME or ~/.cache."""

REPEATS = 15
MARGIN = 1.15
"""The assumed way is left for one that is so many times as fast, by the median of paired runs: less
than the measurement is off on a busy machine is no reason to have other bits."""
ASSUMED = "assumed"

Trials = Mapping[str, Callable[[], object]]
"""The same work in each way that can run here."""

T = TypeVar("T")
logger = logging.getLogger(__name__)
_known: dict[str, "Choice"] = {}


def apart(work: Callable[[], T]) -> T:
    """Do a work in a thread of its own, where no mode of the caller's holds.

    Modes of torch are a thread's: tensors without numbers, inference, autocast, saved tensors.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


class Choice:
    """One of several ways, decided when it is first asked for, the same until the process ends.

    Args:
        name: What is chosen, as in results.
        ways: All there are; the first is assumed where nothing is measured.
        trials: Makes what is timed: its keys are the ways that can run in this process.
    """

    def __init__(self, name: str, ways: Sequence[str], trials: Callable[[], Trials]) -> None:
        self.name, self.ways = name, ways
        self._trials = trials
        self._made: str | None = None
        _known[name] = self

    def __call__(self) -> str:
        """Return the way that is taken.

        Raises:
            ConfigError: The environment asks for one that is not there.
        """
        if self._made is None:
            self._made = apart(self._decide)
        return self._made

    @property
    def made(self) -> str | None:
        """The way, where it has been asked for."""
        return self._made

    def possible(self, way: str) -> bool:
        """Whether this process can take a way."""
        return way in self._possible

    @cached_property
    def _possible(self) -> frozenset[str]:
        return frozenset(self._trials())

    def keep(self, way: str) -> None:
        """Take a way, whatever would have been chosen."""
        assert self.possible(way), way
        self._made = way

    def forget(self) -> None:
        """Decide again when next asked."""
        self._made = None

    def _decide(self) -> str:
        trials = self._trials()
        assumed = next(way for way in self.ways if way in trials)
        asked = forced()
        if asked is not None:
            way = asked.get(self.name, assumed)
            if way not in trials:
                raise ConfigError(
                    f"{FORCED}: {self.name}={way}: "
                    + (
                        "this build of torch has no such operation"
                        if way in self.ways
                        else f"no such way{nearest(way, self.ways)}"
                    )
                )
            return way
        if len(trials) == 1:
            return assumed
        try:
            return self._kept_or_measured(trials, assumed)
        except OSError as error:
            logger.warning(
                f"{self.name}: {assumed} is taken unmeasured, {_file()} cannot be kept: "
                f"{error.strerror}; set {FOLDER} to a folder that can be written"
            )
            return assumed

    def _kept_or_measured(self, trials: Trials, assumed: str) -> str:
        """Look it up, or measure it while all other processes wait."""
        if (kept := self._kept(trials)) is not None:
            return kept
        descriptor, holder = open_lock(_file().with_suffix(".lock"))
        try:
            if holder is not None:
                wait_for_lock(descriptor)
            if (kept := self._kept(trials)) is not None:  # between the look and the lock, too
                return kept
            speeds = relative_speeds(trials, assumed)
            best = max(speeds, key=speeds.__getitem__)
            way = best if speeds[best] > MARGIN else assumed
            found = _read()
            found.setdefault(processor(), {})[self.name] = {"way": way, "speeds": speeds}
            write_text(_file(), json.dumps(found, indent=1, sort_keys=True) + "\n")
        finally:
            os.close(descriptor)
        said = ", ".join(f"{one} {speed:.2f}" for one, speed in speeds.items())
        logger.info("%s: %s on %s (speeds: %s), kept", self.name, way, processor(), said)
        return way

    def _kept(self, trials: Trials) -> str | None:
        entry = _read().get(processor(), {}).get(self.name)
        way = entry.get("way") if isinstance(entry, dict) else None
        return way if way in trials else None


def made() -> dict[str, str]:
    """Return the choices that this process has made so far, by name."""
    return {name: one.made for name, one in sorted(_known.items()) if one.made is not None}


def settle() -> dict[str, str]:
    """Make all choices now, outside of anything that is timed or traced; return them."""
    for one in _known.values():
        one()
    return made()


def keep(ways: Mapping[str, str]) -> list[str]:
    """Take the ways of an earlier process, so that its bits go on.

    Returns:
        What cannot be kept, one line each: the environment asks for another way, or it is not here.
    """
    asked, lost = forced(), []
    for name, way in ways.items():
        choice = _known.get(name)
        if choice is None or not choice.possible(way):
            now = "nothing" if choice is None else choice()
            lost.append(f"{name} were made by {way}, which is not here: now by {now}")
        elif asked is None:
            choice.keep(way)
        elif choice() != way:
            lost.append(f"{name} were made by {way}, {FORCED} asks for {choice()}")
    return lost


def forced() -> dict[str, str] | None:
    """Return the ways that the environment names; None: it does not say.

    Raises:
        ConfigError: It says something else.
    """
    said = os.environ.get(FORCED, "").strip()
    if not said:
        return None
    if said == ASSUMED:
        return {}
    pairs = [part.strip().partition("=") for part in said.split(",")]
    for name, equals, _ in pairs:
        if name not in _known or not equals:
            raise ConfigError(
                f"{FORCED}: {said!r} is not {ASSUMED} or what=way, of {', '.join(sorted(_known))}, "
                "such as products=torch,attention=sdpa"
            )
    return {name: way for name, _, way in pairs}


def relative_speeds(trials: Trials, reference: str) -> dict[str, float]:
    """Return how many times as fast as ``reference`` each way is: the median over paired runs.

    One thread is timed by its own clock, on which other jobs of the machine count little.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds: dict[str, list[float]] = {way: [] for way in trials}
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
        for trial in trials.values():
            trial()
        for _ in range(REPEATS):
            for way, trial in trials.items():
                start = clock()
                trial()
                seconds[way].append(max(clock() - start, 1e-9))
    pairs = {way: zip(seconds[reference], taken, strict=True) for way, taken in seconds.items()}
    return {way: median(a / b for a, b in paired) for way, paired in pairs.items()}


@cache
def _model_name() -> str:
    """What /proc/cpuinfo tells of the first core: makers sell several cores under one name."""
    fields: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if not line.strip():
                break
            fields[key.strip()] = value.strip()
    told = [fields[key] for key in ("model name", "cpu family", "model") if key in fields]
    return " ".join(told) or platform.processor() or platform.machine()


def processor() -> str:
    """Name what a choice holds for: processor, its vector units, torch, threads."""
    capability = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return f"{_model_name()}, {capability}, torch {torch.__version__}, threads {threads}"


def _file() -> Path:
    folder = os.environ.get(FOLDER)
    if folder is None:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = str(Path(base, "difftransformer"))
    return Path(folder, "choices.json")


def _read() -> dict[str, Any]:
    """What was measured so far; a damaged file is measured again."""
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logger.warning(f"{_file()} is damaged ({error}): measured again")
        return {}
    good = isinstance(found, dict) and all(isinstance(one, dict) for one in found.values())
    return found if good else {}
