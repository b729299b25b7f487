"""Small pictures in a line of text: where an interval lies, and what a verdict rests on."""

from typing import NamedTuple

from difftransformer.config.claims import DECIDED
from difftransformer.reporting.formats.wording import duration
from difftransformer.reporting.verdicts import Verdict

_ARROWS = {"lower": "↓ lower", "higher": "↑ higher"}
_WIDTH, _MARGIN = 132.0, 6.0


class Mark(NamedTuple):
    """An effect on a line through zero, in units of the picture."""

    zero: float
    effect: float | None
    low: float | None
    high: float | None
    published: float | None
    margins: tuple[float, float] | None


def mark(verdict: Verdict) -> Mark | None:
    """Place effect, interval and what was published on a line of their own; None: no effect."""
    if verdict.effect is None:
        return None
    margin = verdict.margin if verdict.test in ("equivalence", "noninferiority") else None
    ends = (verdict.effect, verdict.ci_low, verdict.ci_high, verdict.published_effect, margin)
    reach = max((abs(one) for one in ends if one is not None), default=0.0) or 1.0

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        return round(_WIDTH / 2 + (_WIDTH / 2 - _MARGIN) * value / reach, 1)

    low, high = place(None if margin is None else -margin), place(margin)
    return Mark(
        zero=_WIDTH / 2,
        effect=place(verdict.effect),
        low=place(verdict.ci_low),
        high=place(verdict.ci_high),
        published=place(verdict.published_effect),
        margins=None if low is None or high is None else (low, high),
    )


def claimed(verdict: Verdict) -> str:
    """Say which way a claim goes."""
    if verdict.test == "equivalence":
        return f"= within ±{verdict.margin:g}"
    if verdict.test == "noninferiority":
        return f"not worse by {verdict.margin:g}"
    word = _ARROWS[verdict.claimed]
    return f"{word} (sooner)" if verdict.test == "time_to_event" else word


def decides(verdict: Verdict) -> str:
    """Say what would decide a claim that is open."""
    if verdict.verdict in DECIDED:
        return "decided here"
    if verdict.seeds_needed is not None:
        time = "" if verdict.minutes is None else f", {duration(verdict.minutes)}"
        return f"{verdict.seeds_needed} seeds{time}"
    if verdict.verdict == "inconclusive":
        return "no number of seeds that is feasible"
    return "another scale"
