"""Attention weights of one query position as a picture: one row per head, one column per token."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.reporting.drawing import (
    FAINT,
    INK,
    SOFT,
    Axes,
    Figure,
    SubFigure,
    escape_label,
)

Floats = NDArray[np.floating]
_MOST_TOKENS = 48
"""Largest number of tokens that are written below a picture."""
_MOST_COLUMNS = 160
"""Largest number of columns; in longer prompts a column shows the largest weight of several
tokens."""


class TokenWeights(NamedTuple):
    """Normalized attention weights of one query position, [heads of all layers, S].

    Each row is divided by the sum of its absolute values. ``regions`` holds the name of the region
    of each token.
    """

    weights: Floats
    layers: int
    tokens: Sequence[str]
    regions: Sequence[str]

    @classmethod
    def of(cls, rows: Floats, tokens: Sequence[str], regions: Sequence[str]) -> "TokenWeights":
        """Return attention weights [layers, heads, S] in normalized form.

        ``tokens`` and ``regions`` are the prompt's tokens and the region of each.
        """
        weights = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
        sums = np.abs(weights).sum(-1, keepdims=True)
        weights = weights / np.where(sums > 0, sums, 1.0)  # a threshold may leave a row empty
        return cls(weights, rows.shape[0], tokens, regions)


def max_abs_weight(pictures: Sequence[TokenWeights]) -> float:
    """Return the largest absolute weight in several pictures, the limit of a shared color scale."""
    return max(float(np.abs(picture.weights).max()) for picture in pictures)


def draw_token_weights(axes: Axes, rows: TokenWeights, limit: float, framed: str) -> None:
    """Draw attention weights, red above and blue below zero, with a frame around a region."""
    axes.imshow(
        _columns(rows.weights), aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit,
        interpolation="nearest", extent=(-0.5, len(rows.tokens) - 0.5, 1, 0),
    )  # fmt: skip
    middles = (np.arange(rows.layers) + 0.5) / rows.layers
    axes.set_yticks(middles, [str(layer + 1) for layer in range(rows.layers)])
    axes.tick_params(length=0, labelsize=7.5)
    axes.grid(visible=False)
    for layer in range(1, rows.layers):
        axes.axhline(layer / rows.layers, color=FAINT, lw=1.0)
    regions = np.array(rows.regions)
    for index in np.flatnonzero(regions[1:] != regions[:-1]):
        edge = framed in regions[index : index + 2]
        axes.axvline(
            index + 0.5, color=INK if edge else SOFT, lw=1.1 if edge else 0.8,
            ls="-" if edge else (0, (2, 2)),
        )  # fmt: skip


def label_tokens(
    axes: Axes, rows: TokenWeights, bold: Collection[str], names: Mapping[str, str] | None = None
) -> None:
    """Label the x axis with the tokens; those in the regions ``bold`` are bold.

    If there are too many tokens, the axis is labeled with the ``names`` of the regions instead.
    """
    regions = np.array(rows.regions)
    if names is None or len(rows.tokens) <= _MOST_TOKENS:
        axes.set_xticks(range(len(rows.tokens)), [escape_label(token) for token in rows.tokens])
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
        for tick, region in zip(axes.get_xticklabels(), rows.regions, strict=True):
            tick.set_color(INK if region in bold else SOFT)
            tick.set_fontweight("bold" if region in bold else "normal")
        return
    labeled = [region for region in names if region in regions and region != rows.regions[0]]
    middles = [float(np.flatnonzero(regions == region).mean()) for region in labeled]
    axes.set_xticks(middles, [names[region] for region in labeled])


def add_colorbar(figure: Figure | SubFigure, grid: Any) -> None:
    """Draw one color bar for a grid of axes with attention weights."""
    figure.colorbar(
        grid.flat[0].images[0], ax=grid, label="weight / sum of |weights|", shrink=0.7, pad=0.01
    )


def _columns(weights: Floats) -> Floats:
    """Merge tokens into columns; each has its weight of largest absolute value."""
    if weights.shape[1] <= _MOST_COLUMNS:
        return weights
    parts = np.array_split(weights, _MOST_COLUMNS, axis=1)
    return np.stack(
        [np.take_along_axis(p, np.abs(p).argmax(1)[:, None], 1)[:, 0] for p in parts], axis=1
    )
