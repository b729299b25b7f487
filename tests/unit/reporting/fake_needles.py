"""Results of the needle and attention suites with the shape of real ones."""

import json
import random
from typing import TYPE_CHECKING

import numpy as np
from fake_quantized import quantized
from safetensors.numpy import save_file

from difftransformer.evaluations.attention_allocation.settings import MAPS, PROMPT
from difftransformer.evaluations.attention_allocation.settings import ROWS as EXAMPLE

if TYPE_CHECKING:
    from fake_results import FakeResults

Metrics = dict[str, float | int | None]
DEPTHS = (0, 25, 50, 75, 100)
PAIRS = ((1, 1), (2, 2), (4, 2), (6, 2))
LENGTHS = (64, 128, 192, 256)
SAMPLES = 50
REGIONS = ("bos", "before", "answer", "after", "query")
ROWS = ("transformer", "transformer_halved_heads_groupnorm", "diff")


def needle_results(fake: "FakeResults", seed: int) -> None:
    """Everything that tables 2 and 3, figures 1 and 5 and their twins read, of one seed."""
    for row in ROWS:
        fake.recall_model(f"equal_recall_{row}", seed)
        quantized(fake, f"equal_recall_{row}", seed)
        needles(fake, row, seed)
        _attention(fake, row, seed)
        for run in (f"long_recall_{row}", f"long_equal_recall_{row}"):
            fake.history(run, seed, [{"step": 10, "loss": 1.0, "validation_loss": 1.0}])
            fake.training(run, seed, {"validation_loss": 1.0})
            needles_long(fake, run, row, seed)


def _config(kind: str, **settings: object) -> dict[str, object]:
    return {
        "kind": kind,
        "format": "recall",
        "depths": list(DEPTHS),
        "samples": SAMPLES,
        **settings,
    }


def _cells(draw: random.Random, chances: dict[str, float], queries: int) -> Metrics:
    """Counts of cells and of what they add up to; a name without depth holds all of its depths."""
    metrics: Metrics = {}
    for name, chance in chances.items():
        total = 0
        for depth in DEPTHS:
            correct = sum(draw.random() < chance for _ in range(SAMPLES * queries))
            total += correct
            metrics |= _counts(f"{name}_d{depth}", correct, SAMPLES * queries)
        metrics |= _counts(name, total, len(DEPTHS) * SAMPLES * queries)
    return metrics


def _counts(name: str, correct: int, total: int) -> Metrics:
    return {f"accuracy_{name}": correct / total, f"correct_{name}": correct, f"total_{name}": total}


SHARED: Metrics = {"computed_positions": 460, "prompt_positions": 1000}
"""What sharing prefixes saved."""


def needles(fake: "FakeResults", row: str, seed: int) -> None:
    """Multi-needle retrieval of the recall twin of a row."""
    draw = random.Random(f"needles {row} {seed}")
    metrics: Metrics = dict(SHARED)
    for needles, queries in PAIRS:
        chance = 1 / needles if row == "transformer" else 0.99 - 0.02 * needles
        metrics |= _cells(draw, {f"n{needles}_r{queries}": chance}, queries)
    config = _config("needles", pairs=[list(pair) for pair in PAIRS], lengths=None)
    for suite in ("needles", "needles_variants"):
        fake.evaluation(f"recall_{row}", seed, suite, metrics, config)
    fake.evaluation(f"equal_recall_{row}", seed, "needles", metrics, config)


def needles_long(fake: "FakeResults", run: str, row: str, seed: int) -> None:
    """Retrieval by length of a run that answers as a row does."""
    draw = random.Random(f"long {row} {seed}")
    loss = 0.15 if row == "diff" else 0.6
    chances = {f"n8_r1_l{n}": 1 - loss * n / LENGTHS[-1] for n in LENGTHS}
    metrics = _cells(draw, chances, 1) | SHARED
    total = sum(int(metrics[f"correct_{name}"] or 0) for name in chances)
    metrics |= _counts("n8_r1", total, len(LENGTHS) * len(DEPTHS) * SAMPLES)
    config = _config("needles", pairs=[[8, 1]], lengths=list(LENGTHS))
    fake.evaluation(run, seed, "needles_long", metrics, config)


def _attention(fake: "FakeResults", row: str, seed: int) -> None:
    draw = np.random.default_rng([ROWS.index(row), seed])
    suite, run = "attention_allocation", f"recall_{row}"
    pull = (0.5, 2.0, 3.0)[ROWS.index(row)]
    shares = draw.dirichlet([1.0, 5.0, 5.0 * pull, 5.0, 1.0], size=len(DEPTHS))
    metrics: Metrics = {"prompts": len(DEPTHS) * SAMPLES}
    labeled = {"": shares.mean(axis=0)} | {f"_d{d}": shares[i] for i, d in enumerate(DEPTHS)}
    labeled |= {"_l0": 0.5 * labeled[""], "_l1": 1.5 * labeled[""]}
    subtracted = 0.4 if row == "diff" else 0.0  # the same from each region, then a sum of 1 again
    for label, values in labeled.items():
        signed = (values - subtracted * values.sum() / len(REGIONS)) / (1 - subtracted)
        for sign, some in (("", values), ("_signed", signed)):
            named = dict(zip(REGIONS, map(float, some), strict=True))
            named["noise"] = named["before"] + named["after"]
            metrics |= {f"{name}{sign}{label}": value for name, value in named.items()}
    heads, length = (4 if row == "transformer" else 2), 20
    rows = draw.dirichlet(np.full(length, 0.3), size=(2, heads)).astype(np.float32)
    if row == "diff":
        rows -= 0.4 * draw.dirichlet(np.full(length, 0.3), size=(2, heads)).astype(np.float32)
    regions = ["bos", *["before"] * 8, *["answer"] * 2, *["after"] * 8, "query"]
    tokens = [f"f{position:02d}" for position in range(length)]
    maps = np.tril(draw.dirichlet(np.full(length, 0.3), size=(2, heads, length)))
    for run_name in (run, f"equal_{run}"):
        details = fake.root / "evaluations" / suite / run_name / str(seed)
        details.mkdir(parents=True, exist_ok=True)
        np.save(details / EXAMPLE, rows)
        save_file({"maps": maps.astype(np.float16)}, details / MAPS)
        example = {"tokens": tokens, "regions": regions, "maps": True}
        (details / PROMPT).write_text(json.dumps(example))
    config = _config(suite, needles=6)
    for run_name in (run, f"equal_{run}"):
        fake.evaluation(run_name, seed, suite, metrics, config)
