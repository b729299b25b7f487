"""What a suite measures on, and where it may leave what stands behind its numbers."""

from dataclasses import dataclass
from pathlib import Path

import torch

from difftransformer.config.pretrained import PretrainedModel
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.scorer import Scorer

Metrics = dict[str, int | float | None]


@dataclass(frozen=True)
class Subject:
    """A trained model with its data.

    Attributes:
        scorer: The model, as most suites use it.
        dataset: The packed dataset that the model was trained on.
        device: Where the model is.
        ngrams: Keys of the n-grams frequent in training, for the suites that ask for them.
        details: Existing folder for samples and arrays; they become outputs of the job.
        state: Folder that outlives a killed job, for suites that resume; the suite makes it.
        seed: Seed of the training.
        model: Folder of the finished training, for the suites that read more of it.
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
class PretrainedSubject:
    """A model from elsewhere, for the suites that measure any causal language model.

    Attributes:
        model: Where it comes from and how it is loaded; the suite loads it.
        device: Where it shall run.
        details: As of a `Subject`.
        state: As of a `Subject`.
    """

    model: PretrainedModel
    device: torch.device
    details: Path
    state: Path
