"""Power laws of loss in model size or tokens, and points of equal loss of two power laws.

``loss(x) = a * x**-b + c``, fitted by least squares in log loss, so that errors are relative to the
loss; with c = 0 this is a straight line in log x and log loss. A curve is never evaluated outside
the range of x that it was fitted to, where a fit is a guess.
"""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Vector = NDArray[float64]

OutOfRange = Literal["above", "below", "never"]
_TOLERANCE = 1e-9
"""Relative tolerance at the ends of a range, for rounding errors of powers and logarithms."""
_START_OFFSETS = (0.0, 0.3, 0.6, 0.9)
"""Start values of the offset c, as fractions of the smallest loss; the best fit is taken."""
_MAX_EXPONENT = 700.0  # exp of more is no float


class PowerLaw(NamedTuple):
    """Fitted power law ``loss(x) = a * x**-b + c`` for x from ``low`` to ``high``.

    ``residual`` is the root mean square of the fit's residuals in log loss.
    """

    a: float
    b: float
    c: float
    low: float
    high: float
    residual: float

    def loss(self, x: float) -> float:
        """Return the loss of the power law at x."""
        return self.a * math.exp(-self.b * math.log(x)) + self.c

    def inverse(self, loss: float) -> float:
        """Return the x at which the power law has a loss.

        It is infinite if the loss is at or below the limit c, and NaN if the curve does not fall.
        """
        if self.b <= 0:
            return math.nan
        if loss <= self.c:
            return math.inf
        exponent = math.log(self.a / (loss - self.c)) / self.b
        return math.exp(exponent) if exponent < _MAX_EXPONENT else math.inf

    def covers(self, x: float) -> bool:
        """Return whether x is in the range that the power law was fitted to."""
        return self.low * (1 - _TOLERANCE) <= x <= self.high * (1 + _TOLERANCE)


class EqualLoss(NamedTuple):
    """A model's x, and the x at which the baseline's curve has the same loss.

    Attributes:
        x: Size or training tokens of the model.
        loss: Loss of the model's curve at x.
        equal_x: Size or training tokens at which the baseline's curve has that loss; None outside
            the range of the baseline's points.
        ratio: x / equal_x.
        out_of_range: Reason why equal_x is None: "above" or "below" the range of the baseline's
            points, or "never" if the baseline's curve does not fall.
    """

    x: float
    loss: float
    equal_x: float | None
    ratio: float | None
    out_of_range: OutOfRange | None


def fit_power_law(x: Sequence[float], losses: Sequence[float], *, offset: bool) -> PowerLaw:
    """Return the power law fitted to losses at x, with an offset 0 <= c < min(losses) or c = 0.

    It needs a positive loss at two or more different x, at four or more for a fit with an offset.
    """
    import numpy as np

    assert len(x) == len(losses) and len(set(x)) >= (4 if offset else 2), x
    logs, targets = np.log(np.asarray(x, float)), np.log(np.asarray(losses, float))
    center = float(logs.mean())  # around it factor and exponent are almost uncorrelated

    def fit_line(c: float) -> tuple[float, float]:
        slope, intercept = np.polyfit(logs - center, np.log(np.asarray(losses) - c), 1)
        return float(intercept), float(-slope)

    intercept, b, c = (*fit_line(0.0), 0.0)
    if offset:
        intercept, b, c = _fit_with_offset(logs - center, targets, fit_line, min(losses))
    fitted = np.log(np.exp(intercept - b * (logs - center)) + c)
    residual = float(np.sqrt(np.mean((fitted - targets) ** 2)))
    return PowerLaw(math.exp(intercept + b * center), b, c, min(x), max(x), residual)


def find_equal_loss(curve: PowerLaw, baseline: PowerLaw, x: float) -> EqualLoss:
    """Return the point where a baseline's curve has the loss that ``curve`` has at ``x``.

    ``x`` must be in the range that ``curve`` was fitted to.
    """
    assert curve.covers(x), (x, curve)
    loss = curve.loss(x)
    equal = baseline.inverse(loss)
    if baseline.covers(equal):
        return EqualLoss(x, loss, equal, x / equal, None)
    if math.isnan(equal):
        return EqualLoss(x, loss, None, None, "never")
    return EqualLoss(x, loss, None, None, "above" if equal > baseline.high else "below")


def _fit_with_offset(
    logs: "Vector",
    targets: "Vector",
    fit_line: Callable[[float], tuple[float, float]],
    lowest: float,
) -> tuple[float, float, float]:
    """Return intercept, exponent and offset of the best fit from several starts."""
    import numpy as np
    from scipy.optimize import least_squares

    def errors(parameters: "Vector") -> "Vector":
        intercept, b, c = parameters
        return np.asarray(np.log(np.exp(intercept - b * logs) + c) - targets)

    ceiling = lowest * (1 - 1e-6)
    fits = [
        least_squares(
            errors,
            [*fit_line(start * lowest), start * lowest],
            bounds=([-np.inf, -np.inf, 0.0], [np.inf, np.inf, ceiling]),
            x_scale=[1.0, 0.1, lowest],
            xtol=1e-12, ftol=1e-12, gtol=1e-12,
        )
        for start in _START_OFFSETS
    ]  # fmt: skip
    intercept, b, c = min(fits, key=lambda fit: float(fit.cost)).x
    return float(intercept), float(b), float(c)
