"""Table of the resolved settings of every run, beside published ones."""

from collections.abc import Callable
from typing import Any

from difftransformer.evaluations.hyperparameters.settings import Options
from difftransformer.reporting.cells import CellKey, fact_cell
from difftransformer.reporting.document import Column, Section
from difftransformer.reporting.number_format import format_count, format_learning_rate
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import make_section

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
    "lr": ("Peak lr", format_learning_rate),
    "min_lr": ("Last lr", format_learning_rate),
    "decay": ("Decay", str),
    "warmup_steps": ("Warm-up steps", str),
    "weight_decay": ("Weight decay", str),
    "seq_len": ("Length", str),
    "batch_tokens": ("Batch tokens", format_count),
    "tokens": ("Tokens", format_count),
}
"""Column -> its header and number format."""


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of every run's settings; it needs no results."""
    return make_section(
        context,
        [Column(id=key, header=header) for key, (header, _) in _COLUMNS.items()],
        [
            fact_cell(CellKey(row.run, key), row.facts.get(key), [], context.published, write)
            for row in context.rows
            for key, (_, write) in _COLUMNS.items()
        ],
        ["Settings as the training jobs get them; the paper leaves some of them open."],
    )
