"""A trace of some training steps by `torch.profiler`, where one is asked for."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from difftransformer.tracking.tracker import Tracker

PROFILE_STEPS = "DIFFTRANSFORMER_PROFILE_STEPS"
"""Steps to trace. No setting of the run: profiling changes no number and retrains nothing."""
TRACE = "profile.json.gz"

logger = logging.getLogger(__name__)


@contextmanager
def profiled(state: Path, tracker: Tracker, leads: bool = True) -> Iterator[Callable[[], None]]:
    """Trace steps of the block, after two; the trace is an artifact of the run, for Perfetto.

    Args:
        state: State folder of the training, which gets the trace, too.
        tracker: Gets the trace.
        leads: Whether this process does; of several that train together one is traced.

    Yields:
        What the block calls after each step.
    """
    steps = int(os.environ.get(PROFILE_STEPS) or 0)
    if not (steps and leads):
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    def keep(profiler: profile) -> None:
        profiler.export_chrome_trace(str(state / TRACE))
        tracker.log_artifact(state / TRACE)
        logger.info("%s: open it at https://ui.perfetto.dev", state / TRACE)

    order = schedule(wait=1, warmup=1, active=steps, repeat=1)
    with profile(schedule=order, on_trace_ready=keep) as profiler:
        yield profiler.step
