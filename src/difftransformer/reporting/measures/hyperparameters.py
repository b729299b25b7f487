"""Columns of what runs are made with: nothing is measured, and nothing has to be trained."""

from collections.abc import Callable
from typing import Any

from difftransformer.config.artifact_slices import ArtifactSlice, Fact, SectionSlice
from difftransformer.reporting.cells import Paper, Place, fact_cell
from difftransformer.reporting.document import Cell, Column, Row, Section
from difftransformer.reporting.numbers import count, rate

_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "layers": ("Layers", str),
    "d_model": ("Hidden size", str),
    "ffn_dim": ("FFN size", str),
    "vocab_size": ("Vocabulary", str),
    "heads": ("Heads", str),
    "head_dim": ("d", str),
    "rope_theta": ("RoPE θ", "{:g}".format),
    "beta1": ("β1", str),
    "beta2": ("β2", str),
    "lr": ("Peak lr", rate),
    "min_lr": ("Last lr", rate),
    "decay": ("Decay", str),
    "warmup_steps": ("Warm-up steps", str),
    "weight_decay": ("Weight decay", str),
    "seq_len": ("Length", str),
    "batch_tokens": ("Batch tokens", count),
    "tokens": ("Tokens", count),
}
"""Header of each column, and how its values are written."""


def hyperparameters(artifact: ArtifactSlice, part: SectionSlice) -> Section:
    """Make the section: the resolved settings of every row, published ones beside them."""
    paper = Paper(artifact.paper)
    return Section(
        title=part.title,
        columns=[Column(id=key, header=header) for key, (header, _) in _COLUMNS.items()],
        rows=[Row(run=row.run, label=row.label) for row in part.rows],
        cells=[
            _cell(Place(row.run, key), row.facts.get(key), paper)
            for row in part.rows
            for key in _COLUMNS
        ],
        notes=["Settings as the training jobs get them; what the paper leaves open is ours."],
    )


def _cell(place: Place, fact: Fact, paper: Paper) -> Cell:
    """Write a setting as its column is written, and so the published one."""
    write = _COLUMNS[place.column][1]
    published = paper.value(*place)
    return fact_cell(place, fact, [], paper).model_copy(
        update={
            "text": "–" if fact is None else write(fact),
            "paper_text": None if published is None else write(published),
        }
    )
