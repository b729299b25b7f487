"""What heads attend to from one position, as a picture: a line for each head, a column a token."""

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
"""More than so many tokens have no words below them."""
_MOST_COLUMNS = 160
"""Longer prompts are drawn in this many columns, each with its largest weight."""


class TokenWeights(NamedTuple):
    """Rows of a prompt: weights [heads of all layers, S], each divided by the sum of its sizes.

    ``regions`` names the region of each token.
    """

    weights: Floats
    layers: int
    tokens: Sequence[str]
    regions: Sequence[str]

    @classmethod
    def of(cls, rows: Floats, tokens: Sequence[str], regions: Sequence[str]) -> "TokenWeights":
        """Make them of rows [layers, heads, S] as heads have them."""
        weights = rows.reshape(-1, rows.shape[-1]).astype(np.float64)
        sums = np.abs(weights).sum(-1, keepdims=True)
        weights = weights / np.where(sums > 0, sums, 1.0)  # a threshold may leave a row empty
        return cls(weights, rows.shape[0], tokens, regions)


def max_abs_weight(several: Sequence[TokenWeights]) -> float:
    """Size of the largest weight of several prompts or models, for one scale of colors."""
    return max(float(np.abs(one.weights).max()) for one in several)


def draw_token_weights(axes: Axes, rows: TokenWeights, limit: float, framed: str) -> None:
    """Draw weights, red above zero and blue below, with a frame around a region."""
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
    for place in np.flatnonzero(regions[1:] != regions[:-1]):
        edge = framed in regions[place : place + 2]
        axes.axvline(
            place + 0.5, color=INK if edge else SOFT, lw=1.1 if edge else 0.8,
            ls="-" if edge else (0, (2, 2)),
        )  # fmt: skip


def label_tokens(
    axes: Axes, rows: TokenWeights, bold: Collection[str], names: Mapping[str, str] | None = None
) -> None:
    """Write the tokens below, those of some regions bold.

    Where they are many, the ``names`` of the regions are written, if given.
    """
    regions = np.array(rows.regions)
    if names is None or len(rows.tokens) <= _MOST_TOKENS:
        axes.set_xticks(range(len(rows.tokens)), [escape_label(word) for word in rows.tokens])
        axes.tick_params(axis="x", labelrotation=90, labelsize=7)
        for tick, region in zip(axes.get_xticklabels(), rows.regions, strict=True):
            tick.set_color(INK if region in bold else SOFT)
            tick.set_fontweight("bold" if region in bold else "normal")
        return
    shown = [region for region in names if region in regions and region != rows.regions[0]]
    middles = [float(np.flatnonzero(regions == region).mean()) for region in shown]
    axes.set_xticks(middles, [names[region] for region in shown])


def add_colorbar(figure: Figure | SubFigure, grid: Any) -> None:
    """Say what the colors are, beside all axes, an array of those that rows were drawn into."""
    figure.colorbar(
        grid.flat[0].images[0], ax=grid, label="weight / sum of |weights|", shrink=0.7, pad=0.01
    )


def _columns(weights: Floats) -> Floats:
    """Long rows in fewer columns: of each, the weight that is largest in absolute value."""
    if weights.shape[1] <= _MOST_COLUMNS:
        return weights
    parts = np.array_split(weights, _MOST_COLUMNS, axis=1)
    return np.stack(
        [np.take_along_axis(p, np.abs(p).argmax(1)[:, None], 1)[:, 0] for p in parts], axis=1
    )
