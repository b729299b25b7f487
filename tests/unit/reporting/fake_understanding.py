"""Results of language understanding, with the shape of real ones."""

import random
from typing import Any

from difftransformer.evaluations.language_understanding.tasks import DIFF_TASKS


def understanding(
    fake: Any,
    run: str,
    seed: int,
    shots: int,
    data: str = "builtin",
    tasks: tuple[str, ...] = DIFF_TASKS,
    suite: str = "",
) -> None:
    """Write the result of one run."""
    noise = random.Random(f"{run}{seed}{shots}understanding")
    metrics: dict[str, float | int | None] = {}
    for task in [*tasks, "average"]:
        chance = 0.5 if task in ("boolq", "piqa", "winogrande") else 0.25
        metrics |= {
            task: chance + noise.gauss(0, 0.03),
            f"{task}_stderr": 0.03,
            f"{task}_samples": 200,
            f"{task}_chance": chance,
            f"{task}_truncated": 0.1 * shots,
            f"{task}_most_common_share": 1.0 if task == "wsc" else 0.6,
        }
    settings = {
        "kind": "language_understanding", "tasks": list(tasks), "num_fewshot": shots,
        "data": data, "limit": 200,
    }  # fmt: skip
    name = suite or f"language_understanding_{shots}shot"
    fake.evaluation(run, seed, name, metrics, settings)
