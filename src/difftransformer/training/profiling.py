"""An optional `torch.profiler` trace of some training steps."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from difftransformer.tracking.tracker import Tracker

PROFILE_STEPS = "DIFFTRANSFORMER_PROFILE_STEPS"
"""Environment variable for the number of steps to trace. It is not a setting of the run, since a
change of a setting would retrain the run."""
TRACE = "profile.json.gz"

logger = logging.getLogger(__name__)


@contextmanager
def profiled(state: Path, tracker: Tracker, is_rank0: bool = True) -> Iterator[Callable[[], None]]:
    """Trace some training steps within the block, from the third on, with `torch.profiler`.

    The trace is logged as an artifact of the run. DIFFTRANSFORMER_PROFILE_STEPS is the number of
    steps; without it nothing is traced.

    Args:
        state: State folder of the training, to which the trace is written.
        tracker: Tracker that logs the trace as an artifact.
        is_rank0: Whether this process has rank 0; only rank 0 is traced.

    Yields:
        A function to call after each step.
    """
    steps = int(os.environ.get(PROFILE_STEPS) or 0)
    if not (steps and is_rank0):
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    def export(profiler: profile) -> None:
        profiler.export_chrome_trace(str(state / TRACE))
        tracker.log_artifact(state / TRACE)
        logger.info("%s: open it at https://ui.perfetto.dev", state / TRACE)

    steps_to_trace = schedule(wait=1, warmup=1, active=steps, repeat=1)
    with profile(schedule=steps_to_trace, on_trace_ready=export) as profiler:
        yield profiler.step
