"""Names of the choices of Dex, and the schedule of lambda_init by depth; torch is not needed."""

import math
from typing import Literal, Protocol

HeadChoice = Literal["entropy", "low_entropy", "importance"]
"""Criteria to choose the heads of Dex by data."""
LambdaSchedule = Literal["annealed", "learned", "learned_from_zero", "ramped", "fixed"]
"""Schedules of Dex's lambda over training steps."""
LambdaInit = Literal["exponential"] | float
"""lambda_init: "exponential" in depth (see `resolve_lambda_init`), or one number per model."""


class _Layer(Protocol):
    @property
    def layer_index(self) -> int: ...


def lambda_init_of(layer: _Layer, setting: LambdaInit) -> float:
    """Return lambda_init of a layer; the layer's index may be unset unless a schedule needs it."""
    return resolve_lambda_init(setting, layer.layer_index if setting == "exponential" else 0)


def resolve_lambda_init(setting: LambdaInit, layer_index: int) -> float:
    """Return lambda_init of a layer: a fixed number, or DIFF V1's schedule by 0-based depth.

    The schedule is 0.8 - 0.6 exp(-0.3 layer_index) (arXiv 2410.05258, section 2.1).
    """
    return 0.8 - 0.6 * math.exp(-0.3 * layer_index) if setting == "exponential" else float(setting)
