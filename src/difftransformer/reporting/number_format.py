"""How numbers are written for readers; files for machines get full precision instead."""

from collections.abc import Sequence
from math import floor, log10

MINUS = "−"
MIN_DECIMALS = 3


def format_number(value: float, decimals: int) -> str:
    """Write a number with a real minus sign; a rounded zero has none."""
    text = f"{value:.{decimals}f}"
    if not float(text):
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def format_signed(value: float, decimals: int) -> str:
    """Write a difference with its sign, a rounded zero as 0."""
    text = format_number(value, decimals)
    return text if text.startswith(MINUS) or not float(text) else f"+{text}"


def decimals_for(effect: float, low: float | None, high: float | None) -> int:
    """Decimals that show a difference: three, more where its interval would be rounded away.

    Args:
        effect: The difference.
        low: Where its interval begins; None: it has none.
        high: Where it ends.
    """
    size = abs(effect) if low is None or high is None else (high - low) / 2
    return max(MIN_DECIMALS, 1 - floor(log10(size))) if size else MIN_DECIMALS


def with_half_width(text: str, low: float | None, high: float | None, decimals: int) -> str:
    """Add half the width of an interval, if there is one."""
    if low is None or high is None:
        return text
    return f"{text} ± {(high - low) / 2:.{decimals}f}"


def pluralize(number: int, noun: str) -> str:
    """Write how many there are of something: 1 claim, 2 claims."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_p_value(value: float) -> str:
    """Write a p-value: two digits that mean something, never 0."""
    if value < 0.001:
        return "p < 0.001"
    return f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"


def format_learning_rate(value: float) -> str:
    """Write a learning rate shortly: 4e-3 for 0.004; 0.5 and 0 as they are."""
    if value >= 0.1 or value == 0:
        return f"{value:.4g}"
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    digits = mantissa.rstrip("0").rstrip(".")
    return f"{digits}e{int(exponent)}"


def format_count(value: float) -> str:
    """Write a number of parameters or tokens: 141, 29.5K, 0.4M, 10B; −2K where it is below 0."""
    if value <= -0.5:
        return MINUS + format_count(-value)
    sizes = ((9.995e11, 1e12, "T"), (1e8, 1e9, "B"), (1e5, 1e6, "M"), (1e3, 1e3, "K"))
    for least, size, sign in sizes:
        if value >= least:
            return f"{value / size:.3g}{sign}"
    return format_number(value, 0)


def scale_and_size(scale: str, parameters: Sequence[int]) -> str:
    """Name a scale with the size of its models, where that is known."""
    if not parameters:
        return scale
    sizes = " to ".join(dict.fromkeys(map(format_count, (min(parameters), max(parameters)))))
    return f"{scale}, {sizes} parameters"
