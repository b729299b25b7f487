"""Attention weights of a needle prompt's last token, summed by region of the prompt.

Shapes: N = 2 normalizations, absolute and signed, L = layers, H = heads, S = positions,
R = regions, followed by noise.
"""

import numpy as np
from numpy.typing import NDArray

from difftransformer.evaluation.retrieval.settings import REGIONS, NeedlePrompt

Floats = NDArray[np.floating]


def label_regions(prompt: NeedlePrompt, length: int) -> NDArray[np.int64]:
    """Return the region of each position of a needle prompt, as an index of `REGIONS`, [S].

    ``length`` is S, the number of tokens. If the answer needle starts at the first token, that
    token belongs to the region of the answer.
    """
    regions = np.full(length, REGIONS.index("after"), dtype=np.int64)
    regions[: prompt.needle.start] = REGIONS.index("before")
    regions[0] = REGIONS.index("bos")
    regions[slice(*prompt.question)] = REGIONS.index("query")
    regions[slice(*prompt.needle)] = REGIONS.index("answer")
    return regions


def region_shares(rows: Floats, regions: NDArray[np.int64]) -> Floats:
    """Return the share of a query's attention on each region of a prompt.

    Args:
        rows: Attention weights of the query, [L, H, S]: L layers, H heads, S positions.
        regions: Region of each position, [S], from `label_regions`.

    Returns:
        Shares [2, L, H, R], first of absolute, then of signed weights. R are the regions in
        `REGIONS`, then noise (before and after the answer). Weights are divided by their sum,
        unless that is 0, which a threshold can cause.
    """
    weights = np.stack([np.abs(rows), rows])
    sums = weights.sum(-1, keepdims=True)
    weights = weights / np.where(sums == 0, 1.0, sums)
    shares = [weights[..., regions == r].sum(-1) for r in range(len(REGIONS))]
    noise = shares[REGIONS.index("before")] + shares[REGIONS.index("after")]
    return np.stack([*shares, noise], axis=-1)
