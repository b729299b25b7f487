"""Names that the settings of adaptation share with what carries them out."""

from typing import Literal

HeadChoice = Literal["entropy", "low_entropy", "importance"]
"""Ways to choose heads by data."""
LambdaSchedule = Literal["annealed", "learned", "learned_from_zero", "ramped", "fixed"]
"""What lambda of Dex is at a step."""
