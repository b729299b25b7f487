"""Synthetic results of quantized suites."""

import random
from typing import Any

QUANTITIES, BITS = ("attention_logits", "weights", "kv_cache"), (16, 8, 6, 4)


def quantized(fake: Any, run: str, seed: int) -> None:
    """Write the result of one run: accuracy of a recall model, loss of one of text."""
    noise = random.Random(f"quantized{run}{seed}")
    recall = "recall_" in run
    learns = "diff" in run or "groupnorm" in run
    exact = (0.97 if learns else 0.27) if recall else 3.9
    metrics = {"score_unquantized": exact + noise.gauss(0, 0.01)}
    for quantity in QUANTITIES:
        for bits in BITS:
            harm = (0.1 if learns else 0.3) * 4.0 ** (4 - bits)
            change = -harm * (exact - 0.25) if recall else harm
            metrics[f"score_{quantity}_b{bits}"] = metrics["score_unquantized"] + change
    config: dict[str, Any] = {
        "kind": "quantized", "bits": list(BITS), "score": "loss",
        "repeated_suite": "validation_slices",
        "suite": {"kind": "validation_slices", "seq_len": 128},
    }  # fmt: skip
    if recall:
        metrics["chance"] = 0.25
        config |= {"score": "accuracy_n4", "chance": "chance_n4", "repeated_suite": "recall",
                   "suite": {"kind": "recall", "needles": [2, 4]}}  # fmt: skip
    suite = "quantized_accuracy" if recall else "quantized_loss"
    fake.evaluation(run, seed, suite, metrics, config)
