"""Results of the suites of mathematics, with the shape of real ones."""

import random
from typing import Any

from difftransformer.config.math_sets import MATH_SETS

SETTINGS = {"tasks": list(MATH_SETS), "data": "builtin", "max_new_tokens": 64}
KEPT = (300, 600)


def mathematics(fake: Any, run: str, seed: int, suite: str) -> dict[str, float]:
    """Write the result of one run; with kept weights where the suite has them."""
    noise = random.Random(f"{suite}{run}{seed}")
    endings = [*(f"_t{tokens}" for tokens in KEPT), ""] if suite != "mathematics" else [""]
    metrics: dict[str, float] = {}
    for ending in endings:
        for name in MATH_SETS:
            metrics |= {
                f"{name}{ending}": min(1.0, noise.random() / 2 + 0.4 * ("diff" in run)),
                f"{name}_stderr{ending}": 0.05,
                f"{name}_samples{ending}": 50.0,
                f"{name}_tokens{ending}": 20 + 10 * noise.random(),
                f"{name}_filled{ending}": 0.1,
                f"{name}_cut{ending}": 0.0,
            }
        for part in ("", "_stderr", "_tokens"):
            metrics[f"average{part}{ending}"] = sum(
                metrics[f"{name}{part}{ending}"] for name in MATH_SETS
            ) / len(MATH_SETS)
    fake.evaluation(run, seed, suite, metrics, SETTINGS)
    return metrics
