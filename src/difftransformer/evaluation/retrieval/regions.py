"""Attention weights of the answering position of a needle prompt, summed by region.

Shapes: N = 2 normalizations, absolute and signed, L = layers, H = heads, S = positions,
R = regions, followed by noise.
"""

import numpy as np
from numpy.typing import NDArray

from difftransformer.evaluation.retrieval.settings import REGIONS, NeedlePrompt

Floats = NDArray[np.floating]


def label_regions(prompt: NeedlePrompt, length: int) -> NDArray[np.int64]:
    """Return the region of each position of a prompt as an index of REGIONS, [S].

    An answer at the first token counts as answer.
    """
    regions = np.full(length, REGIONS.index("after"), dtype=np.int64)
    regions[: prompt.needle.start] = REGIONS.index("before")
    regions[0] = REGIONS.index("bos")
    regions[slice(*prompt.question)] = REGIONS.index("query")
    regions[slice(*prompt.needle)] = REGIONS.index("answer")
    return regions


def region_shares(rows: Floats, regions: NDArray[np.int64]) -> Floats:
    """Return the share of each region in attention rows [L, H, S], normalized: [N, L, H, R].

    A row that sums to 0, possible after a threshold, is not normalized.
    """
    weights = np.stack([np.abs(rows), rows])
    sums = weights.sum(-1, keepdims=True)
    weights = weights / np.where(sums == 0, 1.0, sums)
    shares = [weights[..., regions == r].sum(-1) for r in range(len(REGIONS))]
    noise = shares[REGIONS.index("before")] + shares[REGIONS.index("after")]
    return np.stack([*shares, noise], axis=-1)
