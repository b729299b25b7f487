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
from difftransformer.reporting.drawing import Figure, printable
from difftransformer.reporting.panels import panels
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.token_rows import (
    TokenRows,
    color_bar,
    draw_rows,
    largest,
    name_tokens,
)
from difftransformer.reporting.view import PromptMaps, View


def section(view: View[Options]) -> Section:
    """Make the section: shares of the marked words, mean over heads and of the lowest head."""
    metrics = [
        Metric(
            share_name(name, word, lowest=lowest),
            f"{SENTENCES[name]._asdict()[word]}{', lowest head' if lowest else ''}",
            compared=word == MISLEADS and not lowest,
        )
        for name in view.options.sentences
        for word in (HELPS, MISLEADS)
        for lowest in (False, True)
    ]
    quoted = "; ".join(f'"{SENTENCES[name].text} …"' for name in view.options.sentences)
    notes = [
        f"{quoted}. Share of the last token's attention that a word gets, signed, over the sum of "
        "the sizes of all weights, mean over heads and layers; below zero where it is subtracted.",
        view.training_note(),
    ]
    return metric_section(view, metrics, decimals=3, notes=notes)


def figure(view: View[Options]) -> Figure:
    """Draw a picture for each row and sentence, of the first seed."""
    names, rows = view.options.sentences, view.rows
    drawn, grid = panels(len(rows), len(names), (6.4 * len(names), 1.2 + 1.6 * len(rows)))
    for column, name in enumerate(names):
        found = [_rows(view, row, name) for row in rows]
        for line, (row, one) in enumerate(zip(rows, found, strict=True)):
            axes = grid[line][column]
            draw_rows(axes, one, largest(found), MISLEADS)
            axes.set_title(printable(row.label), fontsize=9, pad=4)
            axes.set_ylabel("" if column else "layer", fontsize=8)
            axes.set_xticks([])
        name_tokens(grid[-1][column], found[-1], (HELPS, MISLEADS))
    color_bar(drawn, grid)
    return drawn


def maps(view: View[Options]) -> list[PromptMaps]:
    """Whole maps of the first seed, sentence by sentence and row by row."""
    return [
        PromptMaps(
            prompt=f"{SENTENCES[name].text} …",
            run=row.run,
            label=row.label,
            tokens=_known(view, row, name)["tokens"],
            weights=load_file(_detail(view, row, MAPS))[name],
        )
        for name in view.options.sentences
        for row in view.rows
    ]


def _rows(view: View[Options], row: RowSlice, name: str) -> TokenRows:
    known = _known(view, row, name)
    rows = load_file(_detail(view, row, DETAILS))[name]
    return TokenRows.of(rows, known["tokens"], known["words"])


def _known(view: View[Options], row: RowSlice, name: str) -> dict[str, list[str]]:
    """Tokens of a sentence, and the marked word that each has a part of."""
    found: dict[str, dict[str, list[str]]] = json.loads(
        _detail(view, row, TOKENS).read_text(encoding="utf-8")
    )
    return found[name]


def _detail(view: View[Options], row: RowSlice, name: str) -> Path:
    return view.detail(row.run, view.seeds_of(row)[0], name)
