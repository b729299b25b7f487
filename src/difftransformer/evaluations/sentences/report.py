"""Table of the marked words' shares of attention, and figure of attention per head."""

import json
from pathlib import Path

from safetensors.numpy import load_file

from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.evaluations.sentences.sentences import SENTENCES
from difftransformer.evaluations.sentences.settings import (
    DISTRACTOR,
    MAPS,
    RELEVANT,
    ROWS,
    TOKENS,
    Options,
    share_metric,
)
from difftransformer.reporting.document import Section
from difftransformer.reporting.drawing import Figure, escape_label
from difftransformer.reporting.panels import subplot_grid
from difftransformer.reporting.section_context import PromptMaps, SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section
from difftransformer.reporting.token_weights import (
    TokenWeights,
    add_colorbar,
    draw_token_weights,
    label_tokens,
    max_abs_weight,
)


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of the marked words' shares: mean over heads, and lowest head."""
    metrics = [
        MetricColumn(
            share_metric(name, word, lowest=lowest),
            f"{SENTENCES[name]._asdict()[word]}{', lowest head' if lowest else ''}",
            show_difference=word == DISTRACTOR and not lowest,
        )
        for name in context.options.sentences
        for word in (RELEVANT, DISTRACTOR)
        for lowest in (False, True)
    ]
    quoted = "; ".join(f'"{SENTENCES[name].text} …"' for name in context.options.sentences)
    notes = [
        f"{quoted}. Signed share of the last token's attention on a word, over the sum of all "
        "absolute weights, mean over heads and layers; negative if it is subtracted.",
        context.training_note(),
    ]
    return metric_section(context, metrics, decimals=3, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw each head's attention on the first seed, one panel per model and sentence."""
    names, rows = context.options.sentences, context.rows
    figure, grid = subplot_grid(len(rows), len(names), (6.4 * len(names), 1.2 + 1.6 * len(rows)))
    for column, name in enumerate(names):
        rows_by_variant = [_rows(context, row, name) for row in rows]
        for index, (row, token_rows) in enumerate(zip(rows, rows_by_variant, strict=True)):
            axes = grid[index][column]
            draw_token_weights(axes, token_rows, max_abs_weight(rows_by_variant), DISTRACTOR)
            axes.set_title(escape_label(row.label), fontsize=9, pad=4)
            axes.set_ylabel("" if column else "layer", fontsize=8)
            axes.set_xticks([])
        label_tokens(grid[-1][column], rows_by_variant[-1], (RELEVANT, DISTRACTOR))
    add_colorbar(figure, grid)
    return figure


def maps(context: SectionContext[Options]) -> list[PromptMaps]:
    """Return the full attention maps of the first seed, by sentence and model."""
    return [
        PromptMaps(
            prompt=f"{SENTENCES[name].text} …",
            run=row.run,
            label=row.label,
            tokens=_token_record(context, row, name)["tokens"],
            weights=load_file(_detail(context, row, MAPS))[name],
        )
        for name in context.options.sentences
        for row in context.rows
    ]


def _rows(context: SectionContext[Options], row: ResolvedRow, name: str) -> TokenWeights:
    record = _token_record(context, row, name)
    rows = load_file(_detail(context, row, ROWS))[name]
    return TokenWeights.of(rows, record["tokens"], record["words"])


def _token_record(
    context: SectionContext[Options], row: ResolvedRow, name: str
) -> dict[str, list[str]]:
    """Return the tokens of a sentence, and the word that each belongs to."""
    records: dict[str, dict[str, list[str]]] = json.loads(
        _detail(context, row, TOKENS).read_text(encoding="utf-8")
    )
    return records[name]


def _detail(context: SectionContext[Options], row: ResolvedRow, name: str) -> Path:
    return context.detail(row.run, context.seeds_of(row)[0], name)
