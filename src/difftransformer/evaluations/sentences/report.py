"""Attention on sentences: shares of the marked words, and every head as a line of a picture."""

import json
from pathlib import Path

from safetensors.numpy import load_file

from difftransformer.config.artifact_slices import RowSlice
from difftransformer.evaluations.sentences.sentences import SENTENCES
from difftransformer.evaluations.sentences.settings import (
    DETAILS,
    HELPS,
    MAPS,
    MISLEADS,
    TOKENS,
    Options,
    share_name,
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
    """Make the section: shares of the marked words, mean over heads and of the lowest head."""
    metrics = [
        MetricColumn(
            share_name(name, word, lowest=lowest),
            f"{SENTENCES[name]._asdict()[word]}{', lowest head' if lowest else ''}",
            compared=word == MISLEADS and not lowest,
        )
        for name in context.options.sentences
        for word in (HELPS, MISLEADS)
        for lowest in (False, True)
    ]
    quoted = "; ".join(f'"{SENTENCES[name].text} …"' for name in context.options.sentences)
    notes = [
        f"{quoted}. Share of the last token's attention that a word gets, signed, over the sum of "
        "the sizes of all weights, mean over heads and layers; below zero where it is subtracted.",
        context.training_note(),
    ]
    return metric_section(context, metrics, decimals=3, notes=notes)


def figure(context: SectionContext[Options]) -> Figure:
    """Draw a picture for each row and sentence, of the first seed."""
    names, rows = context.options.sentences, context.rows
    drawn, grid = subplot_grid(len(rows), len(names), (6.4 * len(names), 1.2 + 1.6 * len(rows)))
    for column, name in enumerate(names):
        found = [_rows(context, row, name) for row in rows]
        for line, (row, one) in enumerate(zip(rows, found, strict=True)):
            axes = grid[line][column]
            draw_token_weights(axes, one, max_abs_weight(found), MISLEADS)
            axes.set_title(escape_label(row.label), fontsize=9, pad=4)
            axes.set_ylabel("" if column else "layer", fontsize=8)
            axes.set_xticks([])
        label_tokens(grid[-1][column], found[-1], (HELPS, MISLEADS))
    add_colorbar(drawn, grid)
    return drawn


def maps(context: SectionContext[Options]) -> list[PromptMaps]:
    """Whole maps of the first seed, sentence by sentence and row by row."""
    return [
        PromptMaps(
            prompt=f"{SENTENCES[name].text} …",
            run=row.run,
            label=row.label,
            tokens=_known(context, row, name)["tokens"],
            weights=load_file(_detail(context, row, MAPS))[name],
        )
        for name in context.options.sentences
        for row in context.rows
    ]


def _rows(context: SectionContext[Options], row: RowSlice, name: str) -> TokenWeights:
    known = _known(context, row, name)
    rows = load_file(_detail(context, row, DETAILS))[name]
    return TokenWeights.of(rows, known["tokens"], known["words"])


def _known(context: SectionContext[Options], row: RowSlice, name: str) -> dict[str, list[str]]:
    """Tokens of a sentence, and the marked word that each has a part of."""
    found: dict[str, dict[str, list[str]]] = json.loads(
        _detail(context, row, TOKENS).read_text(encoding="utf-8")
    )
    return found[name]


def _detail(context: SectionContext[Options], row: RowSlice, name: str) -> Path:
    return context.detail(row.run, context.seeds_of(row)[0], name)
