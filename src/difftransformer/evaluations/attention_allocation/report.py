"""Table and figure of attention allocation: shares by depth, region, layer; an example prompt."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.attention_allocation.settings import (
    MAPS,
    PROMPT,
    ROWS,
    Options,
    share_name,
)
from difftransformer.reporting.charts import cell_estimates, draw_estimates, select_cells
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import (
    INK,
    SOFT,
    Axes,
    Figure,
    SubFigure,
    escape_label,
    label_axes,
    legend_below,
    legend_handle,
)
from difftransformer.reporting.panels import draw_metric_curves, row_legend, stacked_subfigures
from difftransformer.reporting.section_context import PromptMaps, SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section
from difftransformer.reporting.table_notes import proxy_title
from difftransformer.reporting.token_weights import (
    TokenWeights,
    add_colorbar,
    draw_token_weights,
    label_tokens,
    max_abs_weight,
)

REGION_NAMES = {
    "bos": "First token",
    "before": "Context before",
    "answer": "Answer",
    "after": "Context after",
    "query": "Question",
}
"""Region of a prompt -> name. The shares of all regions in a row of attention add up to 1."""
_PRINTED = {"answer": "Answer {} ↑", "noise": "Noise {} ↓"}
_NORMALIZATIONS = {False: "absolute", True: "signed"}
_FORMATS = {
    "recall": ", a synthetic proxy: keys with values of the builtin recall corpus in its haystack",
    "text": ": English sentences in held-out text",
}
_MAX_TICKS = 8  # on an axis of layers


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of attention shares: by depth, and over all depths.

    Shares over all depths are shown under both normalizations. Signed shares by depth, shares by
    layer and shares of the other regions are in the csv only.
    """
    suite, printed, both = context.suite, _PRINTED.items(), _NORMALIZATIONS.items()
    metrics = [
        MetricColumn(
            share_name(region, depth, signed=signed), header.format(f"{depth}%"), csv_only=signed
        )
        for signed in _NORMALIZATIONS
        for region, header in printed
        for depth in suite.depths
    ]
    metrics += [
        MetricColumn(share_name(region, signed=signed), header.format(f"all, {name}"))
        for region, header in printed
        for signed, name in both
    ]
    metrics += [
        MetricColumn(
            share_name(region, layer=layer, signed=signed),
            f"{region}, {name}, layer {layer + 1}",
            csv_only=True,
        )
        for region in _PRINTED
        for signed, name in both
        for layer in range(_layers(context))
    ]
    metrics += [
        MetricColumn(share_name(region, signed=signed), f"{header}, {name}", csv_only=True)
        for region, header in REGION_NAMES.items()
        if region not in _PRINTED
        for signed, name in both
    ]
    notes = [
        f"{suite.samples} prompts at each depth, {suite.needles} needles of which one is queried"
        f"{_FORMATS[suite.format]}. Answer: the whole answer needle. Noise: the context without "
        "the answer and the first token.",
        "Shares are of absolute weights, divided by their sum. Signed: weights keep their sign and "
        "are divided by their sum, so shares are large where the maps cancel; for softmax both are "
        "equal. The csv has both by depth and by layer.",
        context.training_note(),
    ]
    return metric_section(context.as_proxy(suite.proxy), metrics, decimals=2, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw attention shares by region and by layer, and attention on an example prompt below."""
    examples = [_example(context, row) for row in context.rows]
    heights = (3.6, 1.75 * len(examples))
    fig, top, bottom = stacked_subfigures((11, sum(heights)), heights, 0.03)
    shares, *layer_axs = top.subplots(1, 3, width_ratios=(2.6, 1, 1))
    _shares(shares, context)
    _answer_by_layer(layer_axs, context)
    signs = row_legend(context.rows, context.styles, marker_size=5)
    legend_below(top, [*signs, legend_handle("published", hollow=True)])
    _draw_examples(bottom, context, examples)
    return fig


def _shares(axes: Axes, context: SectionContext[Options]) -> None:
    names = {share_name(region): header for region, header in REGION_NAMES.items()}
    context.require_defined(names)
    draw_estimates(
        axes, cell_estimates(select_cells(section(context), names)), context.styles, names
    )
    for line in axes.lines:
        ours = line.get_markerfacecolor() != "white"
        style: dict[str, Any] = {"ha": "center", "color": INK} if ours else {"ha": "right"}
        for x, y in np.asarray(line.get_xydata()) if line.get_marker() != "None" else ():
            if np.isfinite(y):
                offset = (0, 14) if ours else (-6, 0)  # above the dots of seeds
                axes.annotate(
                    f"{y:.2f}", (x, y), offset, textcoords="offset points", va="center", fontsize=6,
                    **({"color": SOFT} | style),
                )  # fmt: skip
    axes.set(xlim=(-0.65, len(names) - 0.5), ylim=(-0.02, None))
    title = proxy_title("Where the answering position attends", context.suite.proxy)
    label_axes(axes, x="", y="share of attention", title=escape_label(title, 60))


def _answer_by_layer(axs: Sequence[Axes], context: SectionContext[Options]) -> None:
    """Draw the answer's share by layer under both normalizations."""
    layers = range(_layers(context))
    ticks = [layer + 1 for layer in layers]
    for axes, (signed, name) in zip(axs, _NORMALIZATIONS.items(), strict=True):
        names = [share_name("answer", layer=layer, signed=signed) for layer in layers]
        draw_metric_curves(axes, context, ticks, names, marker_size=4)
        label_axes(axes, x="layer", y="", title=f"Answer, {name}")
        axes.set_xticks(ticks[:: -(-len(ticks) // _MAX_TICKS)])
        axes.margins(x=0.1)
    axs[1].sharey(axs[0])
    axs[1].autoscale(axis="y")


def maps(context: SectionContext[Options]) -> list[PromptMaps]:
    """Return each model's saved attention maps on the example prompt of the first seed."""
    prompt_maps = []
    for row in context.rows:
        prompt = _prompt(context, row)
        if prompt.get("maps"):
            weights = load_file(context.detail(row.run, context.seeds[0], MAPS))["maps"]
            title = f"{context.suite.needles} needles, one queried"
            prompt_maps.append(PromptMaps(title, row.run, row.label, prompt["tokens"], weights))
    return prompt_maps


def _layers(context: SectionContext[Options]) -> int:
    """Return the number of layers that every model has."""
    return min(int(row.facts.get("layers") or 0) for row in context.rows)


def _draw_examples(
    fig: SubFigure, context: SectionContext[Options], examples: list[TokenWeights]
) -> None:
    grid = fig.subplots(len(examples), 1, sharex=True, squeeze=False).ravel()
    for axes, row, example in zip(grid, context.rows, examples, strict=True):
        draw_token_weights(axes, example, max_abs_weight(examples), "answer")
        axes.set_title(escape_label(row.label), fontsize=9, pad=4)
        axes.set_ylabel("layer" if example.layers > 1 else "", fontsize=8)
    label_tokens(grid[-1], examples[-1], ("answer", "query"), REGION_NAMES)
    add_colorbar(fig, grid)


def _example(context: SectionContext[Options], row: ResolvedRow) -> TokenWeights:
    seed = context.seeds[0]
    rows = np.load(context.detail(row.run, seed, ROWS), allow_pickle=False)
    prompt = _prompt(context, row)
    return TokenWeights.of(rows, prompt["tokens"], prompt["regions"])


def _prompt(context: SectionContext[Options], row: ResolvedRow) -> dict[str, Any]:
    path = context.detail(row.run, context.seeds[0], PROMPT)
    return dict(json.loads(path.read_text(encoding="utf-8")))
