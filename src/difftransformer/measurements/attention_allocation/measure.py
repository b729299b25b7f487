"""Attention of the answering position: how much goes to the answer and how much to noise.

The last token of a needle prompt is where the answer is made. The weights that each head gives from
there to all S positions, for DIFF the signed difference of its maps, are divided by their sum and
added up by region; shares are averaged over prompts, layers and heads. Noise is the context without
the answer: with the first token, the answer and the question it makes up the whole row.

Shapes: L = layers, H = heads, S = positions, P = prompts of a depth, D = depths, R = regions.
"""

import json

import numpy as np
from numpy.typing import NDArray

from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluation.retrieval.settings import Cell, NeedlePrompt
from difftransformer.evaluation.subject import Metrics, Subject
from difftransformer.measurements.attention_allocation.settings import (
    NOISE,
    REGIONS,
    Suite,
    share_name,
)
from difftransformer.provenance.atomic import replacing, write_text

Floats = NDArray[np.floating]


def measure(suite: Suite, subject: Subject) -> Metrics:
    """Mean shares of the regions, over all depths and by depth.

    Returns:
        bos, before, answer, after, query and noise = before + after, for all depths together and
        of each depth (_d{D}); prompts is their number.

    Raises:
        ConfigError: The prompts do not fit the model or its dataset.
        DataError: Held-out text or the tokenizer is missing.
    """
    builder = open_builder(suite, subject.dataset, max_positions=subject.scorer.max_positions)
    (length,) = suite.contexts
    shares = []
    example = (len(suite.depths) // 2, 0)
    for place, depth in enumerate(suite.depths):
        for sample in range(suite.samples):
            prompt = builder.prompt(Cell(suite.needles, 1, length, depth), sample)
            ids = builder.ids(prompt.context + prompt.questions[0])
            rows = subject.scorer.last_rows(ids, suite.chunk).numpy().astype(np.float64)
            regions = regions_of(prompt, len(ids), suite.answer)
            shares.append(region_shares(rows, regions, suite.normalisation))
            if (place, sample) == example:
                _save(subject, "example_rows", rows)
                shown = {
                    "tokens": [builder.tokenizer.decode([token]) for token in ids],
                    "regions": [REGIONS[region] for region in regions],
                }
                text = json.dumps(shown, indent=1)
                write_text(subject.details / "example.json", text + "\n")
    found = np.stack(shares).reshape(len(suite.depths), suite.samples, *shares[0].shape)
    _save(subject, "shares", found)
    return _metrics(suite, found)


def regions_of(prompt: NeedlePrompt, length: int, answer: str) -> NDArray[np.int64]:
    """Region of each position of a prompt, as an index of REGIONS, [S].

    An answer that starts at the first token is an answer and not the first token.
    """
    span = prompt.needle if answer == "needle" else prompt.value
    regions = np.full(length, REGIONS.index("after"), dtype=np.int64)
    regions[: span.start] = REGIONS.index("before")
    regions[0] = REGIONS.index("bos")
    regions[slice(*prompt.question)] = REGIONS.index("query")
    regions[slice(*span)] = REGIONS.index("answer")
    return regions


def region_shares(rows: Floats, regions: NDArray[np.int64], normalisation: str) -> Floats:
    """Share of each region in rows [L, H, S] that are divided by their sums, [L, H, R].

    Shares of a row without weights, as a threshold may leave it, are 0.
    """
    weights = np.abs(rows) if normalisation == "absolute" else rows
    sums = np.where(rows.any(-1, keepdims=True), weights.sum(-1, keepdims=True), 1.0)
    weights = weights / sums
    return np.stack([weights[..., regions == r].sum(-1) for r in range(len(REGIONS))], axis=-1)


def _metrics(suite: Suite, shares: Floats) -> Metrics:
    """Means of shares [D, P, L, H, R]."""
    by_depth = shares.mean(axis=(1, 2, 3))
    metrics: Metrics = {"prompts": shares.shape[0] * shares.shape[1]}
    found = {None: by_depth.mean(axis=0)} | dict(zip(suite.depths, by_depth, strict=True))
    for depth, row in found.items():
        means = {name: float(value) for name, value in zip(REGIONS, row, strict=True)}
        means[NOISE] = means["before"] + means["after"]
        metrics |= {share_name(name, depth): value for name, value in means.items()}
    return metrics


def _save(subject: Subject, name: str, array: Floats) -> None:
    with replacing(subject.details / f"{name}.npy") as aside, aside.open("wb") as stream:
        np.save(stream, array.astype(np.float32), allow_pickle=False)
