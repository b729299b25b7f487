"""Synthetic results of DIFF V2's own suites and of trainings at large learning rates."""

import random
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from fake_needles import needles
from fake_outliers import outliers

ROWS = {
    # Row -> (final loss, step at which it learns retrieval), as `fake_results.SHAPES`
    "transformer_gqa": (3.852, None),
    "transformer_1_5_heads": (3.846, None),
    "diff_gqa": (3.930, 340),
    "diff_v2": (3.840, 520),
    "diff_v2_across_groups": (3.880, None),
    "diff_v2_no_lambda": (3.850, None),
    "diff_v2_raw_lambda": (3.870, None),
    "gpt_oss_sink": (3.848, None),
    "softmax_off_by_one": (3.849, None),
    "gated_headwise": (3.845, None),
    "gated_elementwise": (3.835, 480),
    "dint": (3.925, 360),
    "shared_diff": (3.940, 400),
    "tda": (3.980, None),
    "grouped_diff_2_1": (3.928, 350),
    "grouped_diff": (3.915, 330),
    "grouped_diff_5_1": (3.935, 370),
    "dex_s_gqa": (3.850, None),
}
HOT = tuple(f"hot_{row.removesuffix('_gqa')}" for row in list(ROWS)[:7])
SWEPT_HOT = ("hot_transformer", "hot_diff", "hot_diff_v2")
ABLATIONS = ("diff_v2_across_groups", "diff_v2_no_lambda", "diff_v2_raw_lambda")
MORE_WORK = (
    "transformer_1_5_heads", "diff_v2", "dint", "grouped_diff", "grouped_diff_2_1",
    "grouped_diff_5_1", "dex_s_gqa",
)  # fmt: skip
"""Rows that have a twin with the Transformer's FLOPs."""
MECHANISMS = {
    "transformer_gqa": "softmax", "transformer_1_5_heads": "softmax", "diff_gqa": "diff_v1",
    "gated_headwise": "gated", "gated_elementwise": "gated", "diff_v2": "diff_v2 sigmoid",
    "diff_v2_no_lambda": "diff_v2 none", "diff_v2_raw_lambda": "diff_v2 raw",
}  # fmt: skip
"""Row -> variant and form of lambda, where the variant has another name than the row."""
VARIANT_FACTS = {
    "parameters": 660_000, "ffn_dim": 344, "kv_bytes": 512, "training_flops": 3_500_000,
    "timed": True,
}  # fmt: skip
"""What planning says of a model, in the same terms."""
POSITIONS = (2, 8, 32, 128)
HOT_STEPS = 80


def mechanism(row: str) -> dict[str, str | None]:
    variant, _, form = MECHANISMS.get(row, row).partition(" ")
    return {"variant": variant, "lambda_form": form or None}


def v2_results(fake: Any, seed: int) -> None:
    """Write everything of one seed but what the rows share with those of table 6."""
    for run in ROWS:
        context_rms(fake, run, seed)
        sinks(fake, run, seed)
    for run in HOT:
        hot_model(fake, run, seed)
    for row in (row for row in ROWS if row not in ABLATIONS):
        for run in (row, f"{row}_equal_flops") if row in MORE_WORK else (row,):
            needles(fake, run, seed)
            if run != row:
                fake.language_model(run, seed)
                fake.recall_model(f"recall_{run}", seed)
                outliers(fake, run, seed)


def hot_sweeps(fake: Any, sweeps: Mapping[str, Sequence[Any]], seeds: Sequence[int]) -> None:
    """Write the sweeps; of the Transformer all seeds but 0 diverge at its last rate."""
    for run, entries in sweeps.items():
        for entry, seed in product(entries, seeds):
            diverges = run == "hot_transformer" and entry is entries[-1] and seed
            at = HOT_STEPS - 10 * seed if diverges else None
            hot_model(fake, entry.run_id, seed, at, entry.learning_rate)


def context_rms(fake: Any, run: str, seed: int) -> None:
    noise = random.Random(f"context{run}{seed}")
    norm = 3.0 if run == "diff_gqa" else 1.0
    metrics: dict[str, float | None] = {
        "tokens": 32768, "magnification": norm, "magnification_max": norm**2,
    }  # fmt: skip
    for kind, factor in (("weights", 1.0), ("before", 0.9), ("after", 0.9 * norm)):
        for position in POSITIONS:
            middle = factor * position**-0.3 * (1 + noise.gauss(0, 0.02))
            name = f"{kind}_p{position}"
            metrics |= {name: middle, f"{name}_low": 0.7 * middle, f"{name}_high": 1.4 * middle}
    if run.partition("_")[0] in ("diff", "dint", "shared", "tda") and "no_lambda" not in run:
        metrics |= {"lambda_l0": 0.3 + noise.gauss(0, 0.01), "lambda_l1": -0.4}
    else:
        metrics |= {"lambda_l0": None, "lambda_l1": None}
    config = {
        "kind": "context_rms", "seq_len": 128, "positions": len(POSITIONS), "first_position": 2,
    }  # fmt: skip
    fake.evaluation(run, seed, "context_rms", metrics, config)


def sinks(fake: Any, run: str, seed: int, suite: str = "sinks") -> None:
    noise = random.Random(f"sinks{run}{seed}")
    share = (0.1 if "v2" in run else 0.3) + noise.gauss(0, 0.01)
    metrics = {
        "share": share, "share_l0": share / 2, "share_l1": share * 1.5, "sink_heads": 0.25,
        "weight": share, "mass": 1.0, "uniform": 0.02, "tokens": 32768,
    }  # fmt: skip
    config = {"kind": "sinks", "seq_len": 128, "first_query": 17}
    fake.evaluation(run, seed, suite, metrics, config)


def hot_model(
    fake: Any, run: str, seed: int, diverges_at: int | None = None, lr: float = 4e-3
) -> None:
    """A training whose every step is logged; spikes grow rarer from row to row of the names."""
    noise = random.Random(f"hot{run}{seed}")
    steps = HOT_STEPS if diverges_at is None else diverges_at - 1
    points = []
    for step in range(1, steps + 1):
        spike = 4.0 if noise.random() < 0.05 else 0.0
        loss = 4 - step / HOT_STEPS + noise.gauss(0, 0.02) + spike
        points.append({"step": step, "loss": loss, "grad_norm": 0.5 * loss + noise.gauss(0, 0.02)})
    fake.history(run, seed, points)
    completed = diverges_at is None
    metrics = {
        "validation_loss": points[-1]["loss"] if completed else None,
        "diverged": int(not completed), "diverged_at": diverges_at, "planned_steps": HOT_STEPS,
    }  # fmt: skip
    fake.training(run, seed, metrics, lr)
