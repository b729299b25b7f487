"""Progress of a training: a log line and a heartbeat file every few seconds."""

import json
import logging
import os
import time
from pathlib import Path

logger = logging.getLogger(__name__)


class Progress:
    """Reporter of a run's speed and remaining time, at most every ``interval`` seconds.

    The heartbeat ``progress.json`` in ``state`` has ``{run, seed, step, steps, loss,
    tokens_per_second, eta_seconds, updated}`` (updated: Unix time) and is replaced atomically. It
    is no result and is not synced to disk. Only rank 0 is ``enabled``. With ``peak_speed``, the
    tokens per second at the peak FLOP/s of the devices, the log line includes the model FLOPs
    utilization (MFU).
    """

    def __init__(
        self,
        state: Path,
        *,
        run: str,
        seed: int,
        step: int,
        tokens_per_step: int,
        peak_speed: float | None = None,
        interval: float = 3.0,
        enabled: bool = True,
    ) -> None:
        self._path = state / "progress.json"
        self._run, self._seed = run, seed
        self._tokens_per_step, self._interval = tokens_per_step, interval
        self._mark = (time.monotonic(), step)
        self._peak_speed, self._enabled = peak_speed, enabled
        self.tokens_per_second = 0.0

    def due(self) -> bool:
        """Whether ``interval`` seconds have passed since the last report."""
        return time.monotonic() - self._mark[0] >= self._interval

    def speed(self, step: int) -> float:
        """Return the tokens per second of the last report, or before it those up to ``step``."""
        seconds, done = time.monotonic() - self._mark[0], step - self._mark[1]
        if self.tokens_per_second or not done or seconds <= 0:
            return self.tokens_per_second
        return done * self._tokens_per_step / seconds

    def report(self, step: int, steps: int, loss: float | None, lr: float) -> None:
        """Log a line of progress and replace the heartbeat file.

        ``steps`` may be smaller than in earlier calls, if training stops early.
        """
        now = time.monotonic()
        seconds, done = now - self._mark[0], step - self._mark[1]
        if done and seconds > 0:
            self.tokens_per_second = done * self._tokens_per_step / seconds
        self._mark = (now, step)
        if not self._enabled:
            return
        tokens = (steps - step) * self._tokens_per_step
        eta = tokens / self.tokens_per_second if self.tokens_per_second else None
        mfu = f" MFU {self.tokens_per_second / self._peak_speed:.0%}" if self._peak_speed else ""
        logger.info(
            "step %d/%d (%d%%) loss %s lr %.1e %s%s ETA %s",
            step,
            steps,
            100 * step // steps,
            "-" if loss is None else f"{loss:.3f}",
            lr,
            rate(self.tokens_per_second),
            mfu,
            "-" if eta is None else clock(eta),
        )
        self._heartbeat(step, steps, loss, eta)

    def _heartbeat(self, step: int, steps: int, loss: float | None, eta: float | None) -> None:
        beat = {
            "run": self._run,
            "seed": self._seed,
            "step": step,
            "steps": steps,
            "loss": loss,
            "tokens_per_second": round(self.tokens_per_second, 1),
            "eta_seconds": None if eta is None else round(eta, 1),
            "updated": time.time(),
        }
        temporary = self._path.with_name(f".progress.{os.getpid()}.json")
        try:
            temporary.write_text(json.dumps(beat), encoding="utf-8")
            temporary.replace(self._path)
        except OSError as error:  # not fatal; the next checkpoint will raise
            logger.debug("no heartbeat: %s", error)


def rate(tokens_per_second: float) -> str:
    """Return a speed in tokens per second as text."""
    large = tokens_per_second >= 10_000
    return f"{tokens_per_second / 1000:.1f}k tok/s" if large else f"{tokens_per_second:.0f} tok/s"


def clock(seconds: float) -> str:
    """Return a duration in seconds as text, m:ss or h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
