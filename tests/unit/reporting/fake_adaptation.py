"""Results of adaptations, with the shape of real ones."""

import random
from itertools import chain, product
from typing import Any

from difftransformer.config.resolved_artifacts import SweepRow

# Method -> (loss on the new text, on the old, parameters that train, those beside the model's).
METHODS = {
    "adapted_full": (0.88, 4.20, 459_000, 0),
    "adapted_kvo": (1.59, 3.95, 98_304, 0),
    "adapted_dex": (1.59, 3.96, 98_818, 514),
    "adapted_lora": (1.47, 4.17, 40_960, 40_960),
    "adapted_lora_matched": (1.42, 4.20, 97_280, 97_280),
    "adapted_lora_32": (1.40, 4.22, 163_840, 163_840),
    "adapted_pissa": (1.38, 4.28, 163_840, 163_840),
    "adapted_galore": (0.85, 5.21, 459_000, 0),
    "adapted_apollo": (1.53, 3.84, 459_000, 0),
}


BASE = (3.9, 3.7)
"""Losses of what is adapted, on the new text and on the old."""
ABLATIONS = (
    "dex_all", "dex_importance", "dex_low_entropy", "dex_learned", "dex_ramped", "dex_fixed",
    "dex_lambda_init_0_8", "dex_lambda_init_0_5", "dex_lambda_init_0_3", "dex_quarter",
    "dex_three_quarters",
)  # fmt: skip
"""Rows of Dex's own tables."""
SCHEDULES = {"dex_learned": 0.2, "dex_learned_from_zero": 0.01, "dex_ramped": 0.3}
"""Schedule -> lambda at the end."""
METHOD_SIZES = {"trained_parameters": 98_818, "extra_parameters": 514}


def adaptations(fake: Any, seed: int) -> None:
    """Write the trainings and the losses of every method with a seed."""
    losses(fake, "transformer", seed, *BASE)
    for run in METHODS:
        _adapted(fake, run, run, seed, 2e-3, 0.0)
    for run in dict.fromkeys((*ABLATIONS, *SCHEDULES)):
        fake.training(run, seed, {"validation_loss": 1.6} | METHOD_SIZES)
    for run in ("adapted_dex", *SCHEDULES):
        height = 0.1 if run == "adapted_dex" else SCHEDULES[run]
        points = [
            {"step": step, "loss": 2.0, "lambda_l0": height * step / 60, "lambda_l1": height}
            for step in range(2, 62, 2)
        ]
        fake.history(run, seed, points)


def swept_adaptations(fake: Any, sweeps: dict[str, list[SweepRow]], seeds: tuple[int, ...]) -> None:
    """Write those at every learning rate: larger ones learn and forget more."""
    for entry, seed in product(chain.from_iterable(sweeps.values()), seeds):
        more = 0.3 * entry.learning_rate / 4e-3
        _adapted(fake, entry.run, entry.run_id, seed, entry.learning_rate, more)


def _adapted(fake: Any, method: str, run: str, seed: int, lr: float, more: float) -> None:
    target, source, trained, extra = METHODS[method]
    sizes = {"trained_parameters": trained, "extra_parameters": extra, "validation_loss": target}
    fake.training(run, seed, sizes, lr=lr)
    losses(fake, run, seed, target - more, source + more)


def losses(
    fake: Any,
    run: str,
    seed: int,
    target: float,
    source: float,
    target_suite: str = "adaptation_target",
) -> None:
    """Write the losses of one run on both texts."""
    noise = random.Random(f"{run}{seed}")
    for suite, loss in ((target_suite, target), ("adaptation_source", source)):
        metrics = {"loss": loss + noise.gauss(0, 0.01), "tokens": 65_536}
        fake.evaluation(run, seed, suite, metrics, {"kind": "adaptation", "seq_len": 128})
