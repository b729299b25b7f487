"""Inputs of an evaluation (a model, its data, folders) and its result."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difftransformer.config.evaluation import LossSuite, WindowSuite
from difftransformer.config.run import PretrainedModel
from difftransformer.data.loader import sequential_windows
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.scorer import Scorer
from difftransformer.provenance.result import PerItemScores, RatioTerm

Metrics = dict[str, int | float | None]


class EvalResult(NamedTuple):
    """Result of an evaluation's ``measure``: metrics, and the scores of single items behind them.

    Attributes:
        metrics: Values by metric name.
        per_item: Per-item scores (of documents, items or prompts) by metric name, for metrics that
            are means over items. Items and their order are the same for every model.
    """

    metrics: Metrics
    per_item: Mapping[str, PerItemScores]


def per_item_scores(
    item_type: str,
    values: Iterable[float],
    weights: Iterable[float] | None = None,
    item_set: str = "",
) -> PerItemScores:
    """Return the per-item scores of a metric that is a sum of values over a sum of weights.

    Args:
        item_type: Kind of item, in the plural, such as "documents".
        values: Numerator of each item, such as its summed loss.
        weights: Denominator of each item, such as its tokens; None: the metric is the mean.
        item_set: Name of the set of items, see `RatioTerm`.
    """
    denominators = None if weights is None else [float(weight) for weight in weights]
    term = RatioTerm(
        values=[float(value) for value in values], weights=denominators, item_set=item_set
    )
    return PerItemScores(item_type=item_type, terms=[term])


@dataclass(frozen=True)
class EvalContext:
    """Input of an evaluation's ``measure``: a trained model with its data and folders.

    Attributes:
        scorer: The model.
        dataset: The packed dataset that the model was trained on.
        device: Device of the model.
        ngrams: File of the n-grams that are frequent in the training data, for suites that need it.
        details: Existing folder for samples and arrays, which become outputs of the job.
        state: Folder that survives a killed job, for suites that resume; the suite creates it.
        seed: Seed that the model was trained with.
        model: Folder of the finished training run.
    """

    scorer: Scorer
    dataset: PackedDataset
    device: torch.device
    ngrams: Path | None
    details: Path
    state: Path
    seed: int
    model: Path | None = None


@dataclass(frozen=True)
class PretrainedContext:
    """Input of ``measure`` for suites that load and measure a pretrained causal language model.

    ``details`` and ``state`` are as in `EvalContext`.
    """

    model: PretrainedModel
    device: torch.device
    details: Path
    state: Path


def validation_windows(suite: WindowSuite, context: EvalContext) -> Iterator[Tensor]:
    """Yield batches of the validation windows a suite reads, token ids int64 [B, T + 1].

    T is the suite's ``seq_len``; targets are shifted by one.

    Raises:
        DataError: The validation split is missing or too short.
    """
    return sequential_windows(
        context.dataset,
        "validation",
        seq_len=suite.seq_len,
        batch_size=suite.batch_size,
        max_tokens=suite.max_tokens,
    )


def losses_by_window(
    suite: LossSuite, context: EvalContext
) -> Iterator[tuple[Tensor, NDArray[np.float64], NDArray[np.int64]]]:
    """Yield batches of validation windows with each target's loss and document number.

    Windows tile the split in order and cross document boundaries, as in training.

    Yields:
        Windows int64 [B, T + 1]; losses in nats and document numbers of the targets, each [B * T].

    Raises:
        DataError: The validation split is missing or too short.
    """
    ends, start = context.dataset.split("validation").document_ends(), 1
    for windows in validation_windows(suite, context):
        losses = context.scorer.losses(windows, suite.loss_chunk).numpy().reshape(-1)
        # The first target of a window is its second token.
        positions = start + np.arange(len(losses))
        yield windows, losses, np.searchsorted(ends, positions, side="right")
        start += len(losses)


def validation_inputs(suite: WindowSuite, context: EvalContext) -> Iterator[Tensor]:
    """Yield batches of a suite's validation windows without the last target, int64 [B, T]."""
    return (batch[:, :-1] for batch in validation_windows(suite, context))
