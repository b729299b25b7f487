"""What tracking costs a training: steps a second with and without it, side by side.

Four trainings take turns inside every repeat: without tracking; with the journal that every job
writes; and sending while they run to a server that answers each call after 5 s, and to one that is
down. Ratios are taken between neighbours of one repeat; the median and all of them are shown. The
one-off cost of a sending job, the import of mlflow and the wait at its end, is timed by itself and
set against the shortest job that pays it (`Delivery.live_after`).

Usage: python benchmarks/tracking_cost.py [--steps 400] [--repeats 5] [--clock wall|cpu] [--record]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from difftransformer.config.data import DatasetConfig
from difftransformer.config.run import RunSlice
from difftransformer.data.tokenise import tokenise
from difftransformer.provenance.environment import capture
from difftransformer.provenance.sender import Delivery
from difftransformer.provenance.tracking import start_job
from difftransformer.training.pretrain import pretrain

KINDS = ("off", "journal", "slow", "down")
DATASET = {
    "sources": {"recall": {"kind": "builtin", "name": "recall"}},
    "tokens": 400_000,
    "validation_tokens": 10_000,
    "tokenizer": {"kind": "none"},
    "recall": {"row_length": 65, "num_queries": 4},
}
IMPORT = "import time; a = time.process_time(); import difftransformer.provenance.mlflow_sink; "
IMPORT += "print(time.process_time() - a)"


def slice_of(steps: int) -> RunSlice:
    """Make a small run that logs and writes checkpoints more often than any of config/scales."""
    return RunSlice.model_validate(
        {
            "scale": "benchmark",
            "run": "diff",
            "dataset": "recall",
            "model": {
                "vocab_size": 128,
                "d_model": 64,
                "num_layers": 2,
                "ffn_dim": 192,
                "attention": {"variant": "diff_v1", "head_dim": 16},
                "max_positions": 128,
            },
            "training": {
                "steps": steps,
                "seq_len": 64,
                "batch_size": 16,
                "lr": 4e-3,
                "warmup_steps": 20,
                "log_every": 10,
                "checkpoint_every": 50,
                "device": "cpu",
            },
        }
    )


class Slow(BaseHTTPRequestHandler):
    """Answers every call with an error after 5 s."""

    def answer(self) -> None:
        """Wait, then fail."""
        time.sleep(5)
        self.send_error(500)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def timed(kind: str, slice: RunSlice, root: Path, slow: str, clock: Any) -> float:
    """Train once in ``root``; seconds between the first and the last step."""
    uri = {"off": "off", "slow": slow, "down": "http://127.0.0.1:9"}.get(kind)
    delivery = Delivery(
        live_after=0.0 if kind in ("slow", "down") else 900.0, root=root, close_wait=0
    )
    uri = uri or f"sqlite:///{root}/mlflow.db"
    with start_job("pretrain", kind, kind, root / "state", {}, {}, uri, delivery) as tracker:
        start = clock()
        pretrain(
            slice,
            dataset=root.parents[1] / "data",
            output=root / "out",
            state=root / "state",
            seed=0,
            threads=1,
            tracker=tracker,
            code="benchmark",
        )
        return float(clock() - start)


def measure(arguments: argparse.Namespace, folder: Path, slow: str) -> dict[str, Any]:
    """Time all kinds in turn, after a warm-up that is thrown away."""
    clock = time.perf_counter if arguments.clock == "wall" else time.process_time
    slice = slice_of(arguments.steps)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for repeat in range(arguments.repeats + 1):
        order = KINDS if repeat % 2 else KINDS[::-1]
        took = {k: timed(k, slice, folder / str(repeat) / k, slow, clock) for k in order}
        if repeat:
            for kind, value in took.items():
                seconds[kind].append(value)
    found: dict[str, Any] = {"seconds_off": [round(value, 3) for value in seconds["off"]]}
    for kind in KINDS[1:]:
        ratios = [one / other for one, other in zip(seconds["off"], seconds[kind], strict=True)]
        found[kind] = {
            "speed_beside_off": round(statistics.median(ratios), 4),
            "all": [round(ratio, 4) for ratio in ratios],
        }
    return found


def one_off() -> dict[str, float]:
    """Seconds that a sending job pays once, as a share of the shortest that does."""
    words = [sys.executable, "-c", IMPORT]
    runs = [float(subprocess.check_output(words, text=True)) for _ in range(3)]
    delivery = Delivery()
    spent = statistics.median(runs) + delivery.close_wait
    share = spent / (delivery.live_after + spent)
    return {"import_cpu_seconds": round(statistics.median(runs), 2), "share": round(share, 4)}


def main() -> int:
    """Measure, print and, if asked, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records")
    arguments = parser.parse_args()
    once = one_off()
    import difftransformer.provenance.mlflow_sink  # noqa: F401 - what `once` counts

    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        tokenise(DatasetConfig.model_validate(DATASET), None, folder / "data", folder / "s", 1)
        slow = f"http://127.0.0.1:{server.server_address[1]}"
        found = measure(arguments, folder, slow) | {"one_off": once, "clock": arguments.clock}
    found |= {"steps": arguments.steps, "environment": capture(1).model_dump()}
    text = json.dumps(found, indent=1)
    print(text)
    if arguments.record:
        day = datetime.now(UTC).date().isoformat()
        path = Path(__file__).parent / "records" / f"tracking_cost-{day}.json"
        path.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
