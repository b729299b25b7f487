"""What DIFF and Dex may be set to: names and a schedule that settings share with models.

Light: torch is not needed.
"""

import math
from typing import Literal, Protocol

HeadChoice = Literal["entropy", "low_entropy", "importance"]
"""Ways to choose the heads of Dex by data."""
LambdaSchedule = Literal["annealed", "learned", "learned_from_zero", "ramped", "fixed"]
"""What lambda of Dex is at a step."""


LambdaInit = Literal["exponential"] | float
"""lambda_init: "exponential" in the depth, see `resolve_lambda_init`, or one number per model."""


class _Layer(Protocol):
    @property
    def layer_index(self) -> int: ...


def lambda_init_of(layer: _Layer, setting: LambdaInit) -> float:
    """Return the initial lambda of a layer.

    Only the schedule by depth reads the layer's index, which a layer used alone may lack.
    """
    return resolve_lambda_init(setting, layer.layer_index if setting == "exponential" else 0)


def resolve_lambda_init(given: LambdaInit, layer: int) -> float:
    """lambda_init of a layer, counted from 0: a number, or the schedule by depth of DIFF V1.

    That is 0.8 - 0.6 exp(-0.3 layer) (arXiv 2410.05258, section 2.1).
    """
    return 0.8 - 0.6 * math.exp(-0.3 * layer) if given == "exponential" else float(given)
