"""Similarity of two models' attention maps by layer (arXiv 2505.16333, B.1 and figure 14).

Maps are averaged over heads, since models differ in their number of heads. Each row of a model's
map is correlated with the baseline's row for the same query of the same window. The map of a
differential head enters with signed weights, or with their absolute values.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import UserError
from difftransformer.evaluations.attention_maps.settings import (
    DETAILS,
    SAVED_QUERIES,
    SAVED_WINDOWS,
    Options,
)
from difftransformer.models.config import layer_metric
from difftransformer.reporting.cells import CellKey, mean_cell, seed_values
from difftransformer.reporting.charts import draw_lines, seed_points
from difftransformer.reporting.document import Cell, Column, Section
from difftransformer.reporting.drawing import Figure, label_axes, legend_below
from difftransformer.reporting.panels import row_legend, subplot_grid
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section

Floats = NDArray[np.float64]
DECIMALS = 3
MEASURES = {"spearman": "Rank correlation", "pearson": "Pearson correlation"}
FORMS = {"absolute": "absolute weights", "signed": "signed weights"}
_MINUS = "absolute_minus_signed"


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of correlations with the baseline's maps, mean over layers."""
    by_row = {row.run: _correlations_of_row(context, row) for row in context.rows_with_baseline}
    layers = max(array.shape[1] for arrays in by_row.values() for array in arrays.values())
    columns = [
        Column(
            id=name if layer is None else layer_metric(name, layer),
            header=header + ("" if layer is None else f", layer {layer + 1}"),
            csv_only=layer is not None,
        )
        for name, header in _headers().items()
        for layer in (None, *range(layers))
    ]
    cells = [
        cell
        for row in context.rows_with_baseline
        for name, array in by_row[row.run].items()
        for cell in _cells(context, row, name, array)
    ]
    notes = [
        "Correlation of rows of a model's attention maps, averaged over heads, with the same rows "
        f"of {' and '.join(context.baseline_labels)}; mean over rows and layers, {SAVED_QUERIES} "
        f"rows of each of {SAVED_WINDOWS} windows of {context.suite.seq_len} tokens.",
        context.training_note(),
    ]
    return make_section(context, columns, cells, notes)


def _headers() -> dict[str, str]:
    return {
        name: header
        for measure, title in MEASURES.items()
        for name, header in (
            *((f"{measure}_{form}", f"{title}, {words}") for form, words in FORMS.items()),
            (f"{measure}_{_MINUS}", f"{title}, absolute − signed"),
        )
    }


def _correlations_of_row(context: SectionContext[Options], row: ResolvedRow) -> dict[str, Floats]:
    """Return correlations of both forms and their difference by column, [seeds, L] each."""
    columns: dict[str, Floats] = {}
    for measure in MEASURES:
        forms = {form: _by_seed(context, row, measure, form) for form in FORMS}
        columns |= {f"{measure}_{form}": array for form, array in forms.items()}
        columns[f"{measure}_{_MINUS}"] = forms["absolute"] - forms["signed"]
    return columns


def figure(context: SectionContext[Options]) -> Figure:
    """Draw correlation with the baseline's maps by layer: absolute weights solid, signed dashed."""
    fig, (axs,) = subplot_grid(1, len(MEASURES), (9, 3.6), sharey=True)
    styles = {
        f"{row.run}/{form}": context.styles[row.run]._replace(dash=dash)
        for row in context.rows_with_baseline
        for form, dash in zip(FORMS, ((), (2.0, 1.5)), strict=True)
    }
    for axes, (measure, title) in zip(axs, MEASURES.items(), strict=True):
        for row, form in product(context.rows_with_baseline, FORMS):
            array = _by_seed(context, row, measure, form)
            points = seed_points(f"{row.run}/{form}", range(array.shape[1]), array.tolist())
            draw_lines(axes, points, styles, marker_size=4)
        axes.set_xticks(range(array.shape[1]), [str(n + 1) for n in range(array.shape[1])])
        label_axes(axes, x="layer", y="correlation" if measure == "spearman" else "", title=title)
    legend_below(fig, row_legend(context.rows_with_baseline, context.styles, marker_size=4))
    return fig


def correlations(
    maps: Floats, baseline: Floats, queries: NDArray[np.int64], measure: str
) -> Floats:
    """Return the mean correlation of the rows of two models' attention maps in each layer, [L].

    Only the keys up to a row's query count. Constant rows are left out; a layer without other rows
    gets NaN.

    Args:
        maps: Rows of a model's maps, [W, L, Q, T]: W windows, L layers, Q queries, T keys.
        baseline: The same rows of the baseline's maps, [W, L, Q, T].
        queries: Positions of the queries, [Q].
        measure: "spearman" or "pearson".
    """
    from scipy.stats import rankdata

    pair = [maps.astype(np.float64), baseline.astype(np.float64)]
    by_row = np.full(maps.shape[:3], np.nan)
    for index, query in enumerate(queries):
        rows = [array[:, :, index, : query + 1] for array in pair]
        if measure == "spearman":
            rows = [rankdata(array, axis=-1) for array in rows]
        x, y = (array - array.mean(-1, keepdims=True) for array in rows)
        norms = np.sqrt((x**2).sum(-1) * (y**2).sum(-1))
        np.divide((x * y).sum(-1), norms, out=by_row[:, :, index], where=norms > 0)
    means = np.full(maps.shape[1], np.nan)
    defined = ~np.isnan(by_row).all((0, 2))  # a layer without attention has no maps
    means[defined] = np.nanmean(by_row[:, defined], axis=(0, 2))
    return means


def _by_seed(context: SectionContext[Options], row: ResolvedRow, measure: str, form: str) -> Floats:
    """Return the correlations of a row with its baseline, [seeds, L]."""
    baseline = next(other for other in context.rows if other.run == row.baseline)
    seeds, baseline_seeds = context.seeds_of(row), context.seeds_of(baseline)
    if len(baseline_seeds) == 1:  # a pretrained baseline is compared with every seed
        baseline_seeds *= len(seeds)
    arrays = []
    for seed, baseline_seed in zip(seeds, baseline_seeds, strict=True):
        ours = load_file(context.detail(row.run, seed, DETAILS))
        theirs = load_file(context.detail(baseline.run, baseline_seed, DETAILS))
        layers = min(len(file["absolute"][0]) for file in (ours, theirs))
        if ours["signed"].shape[0] != theirs["signed"].shape[0]:
            raise UserError(
                f"{row.run} and {row.baseline}: their attention maps were saved for different "
                "numbers of windows; rerun both"
            )
        arrays.append(
            correlations(
                ours[form][:, :layers], theirs["signed"][:, :layers], ours["queries"], measure
            )
        )
    return np.stack(arrays)


def _cells(
    context: SectionContext[Options], row: ResolvedRow, name: str, by_seed: Floats
) -> Iterator[Cell]:
    """Yield the cell of the mean over layers, and one for each layer."""
    results = context.eval_results(row)
    columns = {name: np.nanmean(by_seed, 1)}
    columns |= {layer_metric(name, layer): values for layer, values in enumerate(by_seed.T)}
    for column, values in columns.items():
        pairs = [
            (result, None if np.isnan(value) else float(value))
            for result, value in zip(results, values, strict=True)
        ]
        yield mean_cell(
            CellKey(row.run, column), seed_values(pairs, DECIMALS), DECIMALS, context.published
        )
