"""How alike the maps of two models are, layer by layer (arXiv 2505.16333, B.1 and figure 14).

Of the same queries in the same windows, each model's maps averaged over its heads, since models
differ in how many they have. Rank and Pearson correlation of a row of one with that of the other,
mean over rows; a differential map as it is, signed, or by the sizes of its weights.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.errors import UserError
from difftransformer.evaluations.attention_maps.settings import (
    DETAILS,
    KEPT_QUERIES,
    KEPT_WINDOWS,
    Options,
)
from difftransformer.models.config import layer_metric
from difftransformer.reporting.cells import Place, mean_cell, seed_values
from difftransformer.reporting.charts import lines, over_seeds
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import Figure, legend_below, tidy
from difftransformer.reporting.panels import panels, row_signs
from difftransformer.reporting.sections import section_of
from difftransformer.reporting.view import View

Floats = NDArray[np.float64]
DECIMALS = 3
MEASURES = {"rank": "Rank correlation", "pearson": "Pearson correlation"}
SIDES = {"absolute": "of sizes", "signed": "signed"}


def section(view: View[Options]) -> Section:
    """Make the section; numbers by layer are in the csv."""
    by_row = {row.run: _of_row(view, row) for row in view.compared_rows}
    layers = max(one.shape[1] for found in by_row.values() for one in found.values())
    columns = [
        Column(
            id=name if layer is None else layer_metric(name, layer),
            header=header + ("" if layer is None else f", layer {layer + 1}"),
            tidy_only=layer is not None,
        )
        for name, header in _headers().items()
        for layer in (None, *range(layers))
    ]
    cells = [
        cell
        for row in view.compared_rows
        for name, found in by_row[row.run].items()
        for cell in _cells(view, row, name, found)
    ]
    notes = [
        "Correlation of a row of a model's maps, mean over its heads, with the same row of "
        f"{' and '.join(view.references)}, mean over rows and layers; {KEPT_QUERIES} "
        f"rows of each of {KEPT_WINDOWS} windows of {view.suite.seq_len} tokens.",
        view.training_note(),
    ]
    return section_of(view, columns, cells, notes)


def _headers() -> dict[str, str]:
    return {
        name: header
        for measure, title in MEASURES.items()
        for name, header in (
            *((f"{measure}_{side}", f"{title}, {words}") for side, words in SIDES.items()),
            (f"{measure}_gain", f"{title}, of sizes − signed"),
        )
    }


def _of_row(view: View[Options], row: RowSlice) -> dict[str, Floats]:
    """Correlations of both kinds and sides, and what sizes have over signs, [seeds, L] by name."""
    found: dict[str, Floats] = {}
    for measure in MEASURES:
        sides = {side: _by_seed(view, row, measure, side) for side in SIDES}
        found |= {f"{measure}_{side}": one for side, one in sides.items()}
        found[f"{measure}_gain"] = sides["absolute"] - sides["signed"]
    return found


def figure(view: View[Options]) -> Figure:
    """Draw both correlations by layer; sizes solid, signed weights dashed."""
    drawn, (places,) = panels(1, len(MEASURES), (9, 3.6), sharey=True)
    look = {
        f"{row.run}/{side}": view.look[row.run]._replace(dash=dash)
        for row in view.compared_rows
        for side, dash in zip(SIDES, ((), (2.0, 1.5)), strict=True)
    }
    for axes, (measure, title) in zip(places, MEASURES.items(), strict=True):
        for row, side in product(view.compared_rows, SIDES):
            found = _by_seed(view, row, measure, side)
            points = over_seeds(f"{row.run}/{side}", range(found.shape[1]), found.tolist())
            lines(axes, points, look, marks=4)
        axes.set_xticks(range(found.shape[1]), [str(n + 1) for n in range(found.shape[1])])
        tidy(axes, x="layer", y="correlation" if measure == "rank" else "", title=title)
    legend_below(drawn, row_signs(view.compared_rows, view.look, mark=4))
    return drawn


def correlations(one: Floats, other: Floats, queries: NDArray[np.int64], measure: str) -> Floats:
    """Mean correlation of rows by layer, [W, L, Q, T] twice -> [L].

    A row has the keys up to its query. Rows without spread are left out; NaN where none is left.
    """
    from scipy.stats import rankdata

    ours, theirs = one.astype(np.float64), other.astype(np.float64)
    found = np.full(ours.shape[:3], np.nan)
    for place, query in enumerate(queries):
        pair = [rows[:, :, place, : query + 1] for rows in (ours, theirs)]
        if measure == "rank":
            pair = [rankdata(rows, axis=-1) for rows in pair]
        x, y = (rows - rows.mean(-1, keepdims=True) for rows in pair)
        size = np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
        np.divide((x * y).sum(-1), size, out=found[:, :, place], where=size > 0)
    means = np.full(ours.shape[1], np.nan)
    known = ~np.isnan(found).all((0, 2))  # a layer without attention has no maps
    means[known] = np.nanmean(found[:, known], axis=(0, 2))
    return means


def _by_seed(view: View[Options], row: RowSlice, measure: str, side: str) -> Floats:
    """Correlations of a row with the one that it is compared with, [seeds, L]."""
    return np.stack(list(_of_seeds(view, row, measure, side)))


def _of_seeds(view: View[Options], row: RowSlice, measure: str, side: str) -> Iterator[Floats]:
    other = next(one for one in view.rows if one.run == row.against)
    seeds, theirs_of = view.seeds_of(row), view.seeds_of(other)
    if len(theirs_of) == 1:  # a model from elsewhere is beside each seed
        theirs_of *= len(seeds)
    for seed, their_seed in zip(seeds, theirs_of, strict=True):
        ours = load_file(view.detail(row.run, seed, DETAILS))
        theirs = load_file(view.detail(other.run, their_seed, DETAILS))
        layers = min(len(one["absolute"][0]) for one in (ours, theirs))
        if ours["signed"].shape[0] != theirs["signed"].shape[0]:
            raise UserError(
                f"{row.run} and {row.against} kept rows of different windows: rerun both"
            )
        yield correlations(
            ours[side][:, :layers], theirs["signed"][:, :layers], ours["queries"], measure
        )


def _cells(view: View[Options], row: RowSlice, name: str, by_seed: Floats) -> Iterator[Cell]:
    """Means over layers, and by layer."""
    results = view.evaluated(row)
    columns = {name: np.nanmean(by_seed, 1)}
    columns |= {layer_metric(name, layer): one for layer, one in enumerate(by_seed.T)}
    for column, values in columns.items():
        pairs = [
            (result, None if np.isnan(value) else float(value))
            for result, value in zip(results, values, strict=True)
        ]
        yield mean_cell(Place(row.run, column), seed_values(pairs, DECIMALS), DECIMALS, view.paper)
