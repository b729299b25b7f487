"""Power laws of loss in size or tokens, and where two of them have equal loss.

``loss(x) = a * x**-b + c``, by least squares in log loss, so that errors count relative to the
loss; without an offset, c = 0, this is a straight line in log x and log loss. Nothing is read
outside the range of x that a curve was fitted to: there a fit is a guess.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Vector = NDArray[float64]

Beyond = Literal["above", "below", "never"]
_ROUNDING = 1e-9
"""Relative slack at the ends of a range: powers and logarithms are not quite inverse."""
_SHARES = (0.0, 0.3, 0.6, 0.9)
"""Offsets that the fit starts from, as shares of the smallest loss: the best outcome is kept."""
_MOST = 700.0  # exp of more is no float


class PowerLaw(NamedTuple):
    """``a * x**-b + c``, fitted from ``low`` to ``high``; ``residual`` is the rms in log loss."""

    a: float
    b: float
    c: float
    low: float
    high: float
    residual: float

    def loss(self, x: float) -> float:
        """Loss of the curve at x."""
        return self.a * math.exp(-self.b * math.log(x)) + self.c

    def inverse(self, loss: float) -> float:
        """Return the x with this loss: infinite if only the limit reaches it, NaN if none has it.

        A curve that does not fall has no inverse.
        """
        if self.b <= 0:
            return math.nan
        if loss <= self.c:
            return math.inf
        exponent = math.log(self.a / (loss - self.c)) / self.b
        return math.exp(exponent) if exponent < _MOST else math.inf

    def covers(self, x: float) -> bool:
        """Whether x lies in the range of the fit."""
        return self.low * (1 - _ROUNDING) <= x <= self.high * (1 + _ROUNDING)


class Reading(NamedTuple):
    """At ``x`` one curve has the loss that the other has at ``equal_x``; ``ratio = x / equal_x``.

    Where the equal loss lies outside what was measured of the other there is no ratio, and
    ``beyond`` says on which side: above or below its range, or never, if its curve does not fall.
    """

    x: float
    loss: float
    equal_x: float | None
    ratio: float | None
    beyond: Beyond | None


def fit_power_law(x: Sequence[float], losses: Sequence[float], *, offset: bool) -> PowerLaw:
    """Fit a power law, with an offset 0 <= c < min(losses) or with c = 0.

    Args:
        x: Sizes or budgets, at least two different ones; with an offset at least four.
        losses: A positive loss for each x.
        offset: Whether c is fitted.
    """
    import numpy as np

    assert len(x) == len(losses) and len(set(x)) >= (4 if offset else 2), x
    logs, targets = np.log(np.asarray(x, float)), np.log(np.asarray(losses, float))
    middle = float(logs.mean())  # around it the factor and the exponent hardly trade off

    def line(c: float) -> tuple[float, float]:
        slope, height = np.polyfit(logs - middle, np.log(np.asarray(losses) - c), 1)
        return float(height), float(-slope)

    height, b, c = (*line(0.0), 0.0)
    if offset:
        height, b, c = _with_offset(logs - middle, targets, line, min(losses))
    found = np.log(np.exp(height - b * (logs - middle)) + c)
    residual = float(np.sqrt(np.mean((found - targets) ** 2)))
    return PowerLaw(math.exp(height + b * middle), b, c, min(x), max(x), residual)


def read_equal_loss(ours: PowerLaw, theirs: PowerLaw, x: float) -> Reading:
    """Where ``theirs`` has the loss that ``ours`` has at x, which lies in the range of ``ours``."""
    assert ours.covers(x), (x, ours)
    loss = ours.loss(x)
    equal = theirs.inverse(loss)
    if theirs.covers(equal):
        return Reading(x, loss, equal, x / equal, None)
    beyond: Beyond = "never" if math.isnan(equal) else "above" if equal > theirs.high else "below"
    return Reading(x, loss, None, None, beyond)


def _with_offset(
    logs: "Vector", targets: "Vector", line: Callable[[float], tuple[float, float]], lowest: float
) -> tuple[float, float, float]:
    """Height at the middle, exponent and offset of the best fit from several starts."""
    import numpy as np
    from scipy.optimize import least_squares

    def errors(parameters: "Vector") -> "Vector":
        height, b, c = parameters
        return np.asarray(np.log(np.exp(height - b * logs) + c) - targets)

    ceiling = lowest * (1 - 1e-6)
    fits = [
        least_squares(
            errors,
            [*line(share * lowest), share * lowest],
            bounds=([-np.inf, -np.inf, 0.0], [np.inf, np.inf, ceiling]),
            x_scale=[1.0, 0.1, lowest],
            xtol=1e-12, ftol=1e-12, gtol=1e-12,
        )
        for share in _SHARES
    ]  # fmt: skip
    height, b, c = min(fits, key=lambda fit: float(fit.cost)).x
    return float(height), float(b), float(c)
