"""What an evaluation gets (a model, its data, folders) and what it returns."""

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
    """What ``measure`` of an evaluation returns.

    Attributes:
        metrics: Numbers by name.
        per_item: Scores by document, item or prompt of the metrics that are means over them: the
            same items in the same order for every model.
    """

    metrics: Metrics
    per_item: Mapping[str, PerItemScores]


def per_item_scores(
    item_type: str,
    values: Iterable[float],
    weights: Iterable[float] | None = None,
    item_set: str = "",
) -> PerItemScores:
    """Return the scores of a metric that is one ratio: the sum of values by that of weights.

    Args:
        item_type: What the items are, in the plural.
        values: Of each item.
        weights: Of each item; None: the metric is the mean.
        item_set: Name of the items, see `RatioTerm`.
    """
    denominators = None if weights is None else [float(weight) for weight in weights]
    term = RatioTerm(
        values=[float(value) for value in values], weights=denominators, item_set=item_set
    )
    return PerItemScores(item_type=item_type, terms=[term])


@dataclass(frozen=True)
class EvalContext:
    """A trained model with its data, the input of ``measure``.

    Attributes:
        scorer: The model.
        dataset: The packed dataset that the model was trained on.
        device: Where the model is.
        ngrams: Keys of the n-grams frequent in training, for the suites that need them.
        details: Existing folder for samples and arrays, which become outputs of the job.
        state: Folder that outlives a killed job, for suites that resume; the suite makes it.
        seed: Seed of the training.
        model: Folder of the finished training.
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
    """A pretrained model, for the suites that measure any causal language model.

    The suite loads the model; the folders are those of an `EvalContext`.
    """

    model: PretrainedModel
    device: torch.device
    details: Path
    state: Path


def validation_windows(suite: WindowSuite, context: EvalContext) -> Iterator[Tensor]:
    """Yield the suite's windows of the validation split in batches, int64 [B, T + 1]; T = seq_len.

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
    """Yield windows of the validation split with the loss and the document of each target.

    Windows tile the split in order and cross document boundaries, as in training.

    Returns:
        Windows int64 [B, T + 1]; losses in nats and document numbers of the targets, [B T] each.

    Raises:
        DataError: As `validation_windows`.
    """
    ends, start = context.dataset.split("validation").document_ends(), 1
    for windows in validation_windows(suite, context):
        losses = context.scorer.losses(windows, suite.loss_chunk).numpy().reshape(-1)
        # The first target of a window is its second token.
        positions = start + np.arange(len(losses))
        yield windows, losses, np.searchsorted(ends, positions, side="right")
        start += len(losses)


def validation_inputs(suite: WindowSuite, context: EvalContext) -> Iterator[Tensor]:
    """Yield the windows of `validation_windows` without the last target, int64 [B, T]."""
    return (batch[:, :-1] for batch in validation_windows(suite, context))
