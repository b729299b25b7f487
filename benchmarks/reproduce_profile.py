"""Where the CPU time of a bare `make reproduce` goes: inside of jobs that compute, and outside.

Inside is what trainings and evaluations do between the start of their work and its result, by the
wall clock, as their results say: one core computes one at a time, so on a machine that does nothing
else this is their CPU time, and where it waits for others the share outside comes out too small;
of wall time it would be the whole difference. All else is outside: Snakemake, starts, imports,
tokenizing, reports, tracking. The CPU time of all processes is the kernel's: this one adopts those
whose parent ends. See benchmarks/README.md.
"""

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

from training_step import RECORDS, surroundings

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER of prctl
REPOSITORY = Path(__file__).parents[1]


def build(artifact: str, scale: str, results: Path) -> dict[str, float]:
    """Build an artifact from nothing on one core; return seconds of wall and CPU time."""
    if ctypes.CDLL(None).prctl(_ADOPT, 1) != 0:
        sys.exit("error: only Linux lets a process adopt others")
    words = ["snakemake", artifact, "--cores", "1"]
    words += ["--config", f"scale={scale}", f"results={results}"]
    started = time.monotonic()
    subprocess.run(words, cwd=REPOSITORY, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    wall = time.monotonic() - started
    while True:  # what Snakemake left behind, such as the process that jobs are forked from
        try:
            os.wait()
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall": wall, "cpu": used.ru_utime + used.ru_stime}


def inside(results: Path) -> dict[str, tuple[int, float]]:
    """Jobs and seconds of work by what they do: trainings, and the suites of evaluations."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for pattern in ("*/runs/*/*/training.json", "*/evaluations/*/*/*.json"):
        for path in results.glob(pattern):
            result = json.loads(path.read_text(encoding="utf-8"))
            seconds[result["suite"] or "training"].append(result["provenance"]["seconds"])
    return {name: (len(each), sum(each)) for name, each in sorted(seconds.items())}


def markdown(taken: dict[str, float], work: dict[str, tuple[int, float]]) -> str:
    """Write both as a table."""
    within = sum(seconds for _, seconds in work.values())
    outside = taken["cpu"] - within
    lines = [
        f"{taken['cpu']:.0f} s of CPU in {taken['wall']:.0f} s of wall time on one core; of the "
        f"wall time {1 - within / taken['wall']:.0%} outside",
        "",
        "| what | jobs | s | share |",
        "|---|---:|---:|---:|",
    ]
    rows = [(name, str(jobs), seconds) for name, (jobs, seconds) in work.items()]
    for name, jobs, seconds in [*rows, ("all else", "", outside)]:
        lines.append(f"| {name} | {jobs} | {seconds:.1f} | {seconds / taken['cpu']:.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command line, build, print, and record when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--artifact", default="default_targets")
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--record", action="store_true", help="write JSON to benchmarks/records/")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        taken = build(arguments.artifact, arguments.scale, Path(folder))
        work = inside(Path(folder))
    print(f"\n{markdown(taken, work)}")
    if arguments.record:
        target = {"artifact": arguments.artifact, "scale": arguments.scale}
        report = {**surroundings(1), **target, **taken, "inside": work}
        path = RECORDS / f"reproduce_profile-{datetime.now(UTC).date()}.json"
        path.write_text(json.dumps(report, indent=1) + "\n")
        print(f"recorded in {path}")


if __name__ == "__main__":
    main()
