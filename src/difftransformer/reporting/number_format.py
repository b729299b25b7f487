"""Numbers as text for readers; csv and JSON files have full precision instead."""

from collections.abc import Sequence
from math import floor, log10

MINUS = "−"
MIN_DECIMALS = 3


def format_number(value: float, decimals: int) -> str:
    """Return a number as text with a typographic minus sign; a rounded zero has no sign."""
    text = f"{value:.{decimals}f}"
    if not float(text):
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def format_signed(value: float, decimals: int) -> str:
    """Return a number as text with its sign, plus or minus; a rounded zero has no sign."""
    text = format_number(value, decimals)
    return text if text.startswith(MINUS) or not float(text) else f"+{text}"


def decimals_for(effect: float, low: float | None, high: float | None) -> int:
    """Return the number of decimals for a difference: three, or more if its interval needs them.

    Args:
        effect: The difference.
        low: Lower end of its interval; None: no interval.
        high: Upper end of its interval; None: no interval.
    """
    size = abs(effect) if low is None or high is None else (high - low) / 2
    return max(MIN_DECIMALS, 1 - floor(log10(size))) if size else MIN_DECIMALS


def with_half_width(text: str, low: float | None, high: float | None, decimals: int) -> str:
    """Return ``text`` followed by ± half the width of an interval, if there is one."""
    if low is None or high is None:
        return text
    return f"{text} ± {(high - low) / 2:.{decimals}f}"


def pluralize(number: int, noun: str) -> str:
    """Return a count with its noun as text: 1 claim, 2 claims."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_p_value(value: float) -> str:
    """Return a p-value as text with two significant digits; small ones are p < 0.001."""
    if value < 0.001:
        return "p < 0.001"
    return f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"


def format_learning_rate(value: float) -> str:
    """Return a learning rate as text: 4e-3 for 0.004; 0.5 and 0 as they are."""
    if value >= 0.1 or value == 0:
        return f"{value:.4g}"
    mantissa, _, exponent = f"{value:.3e}".partition("e")
    digits = mantissa.rstrip("0").rstrip(".")
    return f"{digits}e{int(exponent)}"


def format_count(value: float) -> str:
    """Return a count of parameters or tokens as text: 141, 29.5K, 0.4M, 10B, −2K."""
    if value <= -0.5:
        return MINUS + format_count(-value)
    sizes = ((9.995e11, 1e12, "T"), (1e8, 1e9, "B"), (1e5, 1e6, "M"), (1e3, 1e3, "K"))
    for least, size, letter in sizes:
        if value >= least:
            return f"{value / size:.3g}{letter}"
    return format_number(value, 0)


def scale_and_size(scale: str, parameters: Sequence[int]) -> str:
    """Return the name of a scale, with the sizes of its models if there are any."""
    if not parameters:
        return scale
    sizes = " to ".join(dict.fromkeys(map(format_count, (min(parameters), max(parameters)))))
    return f"{scale}, {sizes} parameters"
