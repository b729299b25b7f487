"""Kill one training ten times at random moments and compare its bytes with one never killed.

Each attempt is a process of its own, ended by SIGKILL; every file of the outcome must be the same:
weights, model config, history and the metrics of the result.

Usage: python benchmarks/kill_resume.py [--variant diff_v1] [--kills 10] [--steps 600] [--seed 0]
Exit status: 0 if the outcome is the same to the bit, 1 if not.
"""

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.config.run import RunSlice

FILES = ("model.safetensors", "config.json", "history.csv")
CHECKPOINT_EVERY = 7

DATASET = {
    "sources": {"recall": {"kind": "builtin", "name": "recall"}},
    "tokens": 200_000,
    "validation_tokens": 10_000,
    "tokenizer": {"kind": "none"},
    "recall": {"row_length": 33, "num_queries": 4},
}


def slice_of(variant: str, steps: int) -> RunSlice:
    """Make a small run in which everything a checkpoint must hold is at work."""
    return RunSlice.model_validate(
        {
            "scale": "benchmark",
            "run": variant,
            "dataset": "recall",
            "model": {
                "vocab_size": 128,
                "d_model": 64,
                "num_layers": 2,
                "ffn_dim": 128,
                "attention": {"variant": variant, "head_dim": 16},
                "max_positions": 64,
            },
            "training": {
                "steps": steps,
                "seq_len": 32,
                "batch_size": 16,
                "micro_batch_size": 8,
                "lr": 4e-3,
                "warmup_steps": 20,
                "log_every": 10,
                "validate_every": 50,
                "checkpoint_every": CHECKPOINT_EVERY,
                "device": "cpu",
                "probe": {"samples": 32, "every": 25},
            },
        }
    )


def train(folder: Path, variant: str, steps: int) -> None:
    """One attempt: the call that a job makes."""
    from difftransformer.provenance.tracking import NullTracker
    from difftransformer.training.pretrain import pretrain

    pretrain(
        slice_of(variant, steps),
        dataset=folder.parent / "data",
        output=folder / "out",
        state=folder / "state",
        seed=0,
        threads=1,
        tracker=NullTracker(),
        code="benchmark",
    )


def start(folder: Path, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start an attempt in its own process."""
    options = ["--variant", arguments.variant, "--steps", str(arguments.steps)]
    return subprocess.Popen([sys.executable, __file__, "--attempt", str(folder), *options])


def newest_checkpoint(folder: Path) -> int:
    """Return the step of the newest checkpoint, 0 without one."""
    names = (path.name.removeprefix("checkpoint-") for path in (folder / "state").glob("check*"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def killed_run(folder: Path, arguments: argparse.Namespace) -> int:
    """Train with kills spread over the run; returns how many hit a living process."""
    moment = random.Random(arguments.seed)
    last = arguments.steps - 3 * CHECKPOINT_EVERY
    goals = sorted(moment.randint(0, last) for _ in range(arguments.kills))
    hits = 0
    for goal in goals:
        process = start(folder, arguments)
        while newest_checkpoint(folder) < goal and process.poll() is None:
            time.sleep(0.002)
        # Random also at the start: a process may die while it imports, restores or steps.
        time.sleep(
            moment.uniform(0.0, 3.0) if newest_checkpoint(folder) == 0 else moment.uniform(0.0, 0.1)
        )
        process.kill()
        hits += process.wait() == -signal.SIGKILL
        print(f"killed after the checkpoint of step {newest_checkpoint(folder)}", flush=True)
    if start(folder, arguments).wait() != 0:
        raise SystemExit("the last attempt failed")
    return hits


def outcome(folder: Path) -> dict[str, Any]:
    """Digests of the output files, and the metrics."""
    found: dict[str, Any] = {
        name: hashlib.sha256((folder / "out" / name).read_bytes()).hexdigest() for name in FILES
    }
    found["metrics"] = json.loads((folder / "out" / "training.json").read_text())["metrics"]
    return found


def main() -> int:
    """Compare the two runs and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", default="diff_v1")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--attempt", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attempt is not None:
        train(arguments.attempt, arguments.variant, arguments.steps)
        return 0
    from difftransformer.data.tokenise import tokenise

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        dataset = DatasetConfig.model_validate(DATASET)
        tokenise(dataset, None, root / "data", root / "data_state", workers=1)
        if start(root / "undisturbed", arguments).wait() != 0:
            raise SystemExit("the undisturbed run failed")
        hits = killed_run(root / "killed", arguments)
        one, other = outcome(root / "undisturbed"), outcome(root / "killed")
    for name, value in one.items():
        print(f"{name}: {'same' if other[name] == value else 'DIFFERENT'}  {value}")
    print(f"{hits} of {arguments.kills} kills hit the living process")
    return 0 if one == other and hits == arguments.kills else 1


if __name__ == "__main__":
    sys.exit(main())
