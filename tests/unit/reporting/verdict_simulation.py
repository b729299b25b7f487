"""Simulated results with a known truth, and the error rates of verdicts on them."""

from typing import NamedTuple

import numpy as np
from judging import claim
from numpy.typing import NDArray

from difftransformer.reporting.claim_tests import run_test
from difftransformer.reporting.statistics import Contrast, item_variance, paired_contrast

MARGIN = 0.5


class Design(NamedTuple):
    """Differences of S seeds on D documents, as a random-effects model.

    Attributes:
        seeds: S.
        documents: D.
        seed_share: Variance that seeds add to the mean over that which documents add.
        interaction: Standard deviation of a seed on a document beside the documents' own, 1.
        skewed: Whether documents are exponential instead of normal.
    """

    seeds: int
    documents: int
    seed_share: float
    interaction: float
    skewed: bool

    def draw(self, random: np.random.Generator, effect: float) -> NDArray[np.float64]:
        """Differences [S, D] with this expectation."""
        spread = np.sqrt(self.seed_share * self.seeds / self.documents)
        documents = (
            random.exponential(1.0, self.documents) - 1
            if self.skewed
            else random.normal(0, 1, self.documents)
        )
        shape = (self.seeds, self.documents)
        seeds = random.normal(0, spread, (self.seeds, 1))
        noise = random.normal(0, self.interaction, shape) if self.interaction else np.zeros(shape)
        return np.asarray(effect + seeds + documents + noise)


def described(drawn: NDArray[np.float64]) -> Contrast:
    """What the pipeline makes of differences [S, D]."""
    means = drawn.mean(1)
    centered = (drawn - means[:, None]) / drawn.shape[1]
    return paired_contrast(means.tolist(), item_variance=item_variance([centered]))


def coverage(design: Design, repeats: int, seed: int = 0) -> float:
    """Share of the 95% intervals that hold the truth."""
    random = np.random.default_rng(seed)
    intervals = [described(design.draw(random, 0.0)).interval() for _ in range(repeats)]
    return float(np.mean([low is not None and low < 0 < high for low, high in intervals]))


def decided_wrongly(design: Design, test: str, alpha: float, repeats: int, seed: int = 0) -> float:
    """Share of verdicts that say more than is true, where truth lies on the boundary."""
    tested_claim = claim(test) if test == "difference" else claim(test, margin=MARGIN)
    truth = 0.0 if test == "difference" else MARGIN
    random = np.random.default_rng(seed)
    contrasts = [
        run_test(tested_claim, described(design.draw(random, truth))) for _ in range(repeats)
    ]
    return sum(contrast.p < alpha for contrast in contrasts) / repeats
