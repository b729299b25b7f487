"""Largest values and median of a stream of absolute values, in one pass and constant memory.

The largest values are exact. The median comes from counts in bins of equal ratio, as in DDSketch
(Masson et al. 2019, arXiv 1908.10693); its relative error is at most `MEDIAN_ERROR`.
"""

import math

import torch
from torch import Tensor

_RATIO = 1.01
_SMALLEST, _LARGEST = 1e-9, 1e9
_BINS = math.ceil(math.log(_LARGEST / _SMALLEST, _RATIO))
MEDIAN_ERROR = (_RATIO - 1) / (_RATIO + 1)
"""Maximum relative error of a median between 1e-9 and 1e9; smaller values count as zero."""


class Magnitudes:
    """Running summary of absolute values: the largest values, and counts in bins for the median.

    Args:
        num_largest: Number of largest values that are stored exactly.
    """

    def __init__(self, num_largest: int) -> None:
        self._num_largest = num_largest
        self._top = torch.empty(0)
        self._zeros = 0
        self.counts = torch.zeros(_BINS, dtype=torch.int64)

    def update(self, values: Tensor) -> None:
        """Add the absolute values of a tensor of any shape.

        Infinity and NaN rank as the largest values; NaN is in no bin.
        """
        flat = values.detach().abs().flatten().float()
        largest = flat.topk(min(self._num_largest, flat.numel())).values.cpu()
        merged = torch.cat((self._top, largest))
        self._top = merged.topk(min(self._num_largest, merged.numel())).values
        bins = ((flat.log() - math.log(_SMALLEST)) / math.log(_RATIO)).floor()
        self._zeros += int((bins < 0).sum())
        indices = bins[bins >= 0].clamp_(max=_BINS - 1).long()
        self.counts += torch.bincount(indices, minlength=_BINS).cpu()

    @property
    def number(self) -> int:
        """Number of values added so far, without NaN."""
        return self._zeros + int(self.counts.sum())

    def largest(self, rank: int) -> float | None:
        """Return the exact ``rank``-th largest value, or None if fewer values were added."""
        assert 1 <= rank <= self._num_largest, rank
        return float(self._top[rank - 1]) if rank <= len(self._top) else None

    def median(self) -> float | None:
        """Return the lower median within `MEDIAN_ERROR`, or None without values."""
        if not self.number:
            return None
        rank = (self.number - 1) // 2
        if rank < self._zeros:
            return 0.0
        index = int(torch.searchsorted(self.counts.cumsum(0), rank - self._zeros, right=True))
        return _edge(index) * 2 * _RATIO / (_RATIO + 1)

    def histogram(self, per_decade: int = 10) -> tuple[list[float], list[int]]:
        """Return the lower edges and counts of bins, ``per_decade`` of them per factor of ten.

        Empty bins at both ends are left out.
        """
        coarse_bins = [math.floor(math.log10(_edge(index)) * per_decade) for index in range(_BINS)]
        start = coarse_bins[0]
        coarse = torch.zeros(coarse_bins[-1] - start + 1, dtype=torch.int64)
        coarse.index_add_(0, torch.tensor(coarse_bins) - start, self.counts)
        filled = coarse.nonzero().flatten().tolist()
        if not filled:
            return [], []
        first, last = filled[0], filled[-1] + 1
        edges = [10 ** ((start + index) / per_decade) for index in range(first, last)]
        return edges, coarse[first:last].tolist()


def _edge(index: int) -> float:
    return _SMALLEST * _RATIO**index
