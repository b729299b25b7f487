"""Results of the suite of outliers, with the shape of real ones."""

import json
import math
import random
from typing import Any

RANKS = (1, 2, 3, 10, 100)


def outliers(fake: Any, run: str, seed: int) -> None:
    """Write the result of one run, and its histograms beside it."""
    noise = random.Random(f"outliers{run}{seed}")
    metrics: dict[str, float] = {"tokens": 65536, "median_error": 0.005}
    histograms = {}
    for kind, largest in (("attention_logits", 20.0), ("hidden_states", 30.0)):
        top = largest * math.exp(noise.gauss(0, 0.1)) * (0.5 if "diff" in run else 1)
        metrics |= {f"{kind}_top{rank}": top / rank**0.1 for rank in RANKS}
        metrics[f"{kind}_median"] = top / 20
        edges = [10 ** (exponent / 10) for exponent in range(-20, round(10 * math.log10(top)) + 1)]
        counts = [round(1e5 * edge * math.exp(-10 * edge / top)) + 1 for edge in edges]
        histograms[kind] = {"edges": edges, "counts": counts}
    details = fake.root / f"evaluations/outliers/{run}/{seed}"
    details.mkdir(parents=True, exist_ok=True)
    (details / "histograms.json").write_text(json.dumps(histograms))
    config = {"kind": "outliers", "seq_len": 128}
    fake.evaluation(run, seed, "outliers", metrics, config)
