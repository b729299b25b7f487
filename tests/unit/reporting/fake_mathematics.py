"""Results of the suites of mathematics, with the shape of real ones."""

import json
import random
from typing import Any

from difftransformer.data.math_sets import MATH_SETS

SETTINGS = {
    "kind": "mathematics", "tasks": list(MATH_SETS), "data": "builtin", "max_new_tokens": 64,
}  # fmt: skip
TRAINING = {
    "steps": 800, "seq_len": 150, "batch_size": 10, "lr": 4e-3, "warmup_steps": 8,
    "save_checkpoints_at": [0.25, 0.5],
}  # fmt: skip
CHECKPOINT_TOKENS = (300_000, 600_000)


def mathematics(fake: Any, run: str, seed: int, suite: str) -> None:
    """Write the result of one run that is trained; with kept weights where the suite has them."""
    from fake_results import rewrite  # which imports this module

    noise = random.Random(f"{suite}{run}{seed}")
    endings = (
        [*(f"_t{tokens}" for tokens in CHECKPOINT_TOKENS), ""] if suite != "mathematics" else [""]
    )
    metrics: dict[str, float] = {}
    for ending in endings:
        for name in MATH_SETS:
            metrics |= {
                f"{name}{ending}": min(1.0, noise.random() / 2 + 0.4 * ("diff" in run)),
                f"{name}_stderr{ending}": 0.05,
                f"{name}_samples{ending}": 50.0,
                f"{name}_tokens{ending}": 20 + 10 * noise.random(),
                f"{name}_reached_limit{ending}": 0.1,
                f"{name}_truncated{ending}": 0.0,
            }
        for part in ("", "_stderr", "_tokens"):
            metrics[f"average{part}{ending}"] = sum(
                metrics[f"{name}{part}{ending}"] for name in MATH_SETS
            ) / len(MATH_SETS)
    fake.evaluation(
        run, seed, suite, metrics, SETTINGS | {"intermediate_checkpoints": len(endings) > 1}
    )
    path = fake.root / f"runs/{run}/{seed}/training.json"
    result = json.loads(path.read_text())
    result["settings"]["training"] |= TRAINING
    rewrite(path, json.dumps(result))
