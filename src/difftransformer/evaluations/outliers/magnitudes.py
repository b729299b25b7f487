"""Largest values and the median of many absolute values, in one pass and little memory.

The largest are exact. The median comes from counts in bins of equal ratio, as in DDSketch (Masson
et al. 2019, arXiv 1908.10693): its relative error is at most `MEDIAN_ERROR`.
"""

import math

import torch
from torch import Tensor

_RATIO = 1.01
_SMALLEST, _LARGEST = 1e-9, 1e9
_BINS = math.ceil(math.log(_LARGEST / _SMALLEST, _RATIO))
MEDIAN_ERROR = (_RATIO - 1) / (_RATIO + 1)
"""Largest relative error of a median between 1e-9 and 1e9; smaller values count as zero."""


class Magnitudes:
    """Running summary of |x| over any number of tensors.

    Args:
        keep: How many of the largest values are kept exactly.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._top = torch.empty(0)
        self._zeros = 0
        self.counts = torch.zeros(_BINS, dtype=torch.int64)

    def update(self, values: Tensor) -> None:
        """Count values of any shape; infinity and NaN are the largest, and NaN in no bin."""
        flat = values.detach().abs().flatten().float()
        largest = flat.topk(min(self._keep, flat.numel())).values.cpu()
        both = torch.cat((self._top, largest))
        self._top = both.topk(min(self._keep, both.numel())).values
        bins = ((flat.log() - math.log(_SMALLEST)) / math.log(_RATIO)).floor()
        self._zeros += int((bins < 0).sum())
        kept = bins[bins >= 0].clamp_(max=_BINS - 1).long()
        self.counts += torch.bincount(kept, minlength=_BINS).cpu()

    @property
    def number(self) -> int:
        """How many values were counted."""
        return self._zeros + int(self.counts.sum())

    def largest(self, rank: int) -> float | None:
        """Return the ``rank``-th largest value, exactly; None where fewer were counted."""
        assert 1 <= rank <= self._keep, rank
        return float(self._top[rank - 1]) if rank <= len(self._top) else None

    def median(self) -> float | None:
        """Return the lower median, within `MEDIAN_ERROR`; None of no values."""
        if not self.number:
            return None
        rank = (self.number - 1) // 2
        if rank < self._zeros:
            return 0.0
        index = int(torch.searchsorted(self.counts.cumsum(0), rank - self._zeros, right=True))
        return _edge(index) * 2 * _RATIO / (_RATIO + 1)

    def histogram(self, per_decade: int = 10) -> tuple[list[float], list[int]]:
        """Return lower edges and counts of coarser bins, from the first to the last that has any.

        A fine bin belongs to the coarse one of its lower edge.
        """
        places = [math.floor(math.log10(_edge(index)) * per_decade) for index in range(_BINS)]
        start = places[0]
        coarse = torch.zeros(places[-1] - start + 1, dtype=torch.int64)
        coarse.index_add_(0, torch.tensor(places) - start, self.counts)
        filled = coarse.nonzero().flatten().tolist()
        if not filled:
            return [], []
        first, last = filled[0], filled[-1] + 1
        edges = [10 ** ((start + index) / per_decade) for index in range(first, last)]
        return edges, coarse[first:last].tolist()


def _edge(index: int) -> float:
    return _SMALLEST * _RATIO**index
