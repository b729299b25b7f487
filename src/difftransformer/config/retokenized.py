"""Datasets retokenized for a pretrained model, named after both."""

from collections.abc import Iterable
from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.config.run import PretrainedModel
from difftransformer.config.tokenizers import HuggingFaceTokenizer

_BETWEEN = "_of_"


def name_of(text: str, run: str) -> str:
    """Return the name of a dataset retokenized for the model of a run."""
    return text + _BETWEEN + run


def text_of(dataset: str, run: str) -> str:
    """Return the name of the original dataset."""
    return dataset.removesuffix(_BETWEEN + run)


def reader_of(dataset: str, runs: Iterable[str]) -> str | None:
    """Return the run for whose model a dataset is retokenized; None: for none of these."""
    return next((run for run in runs if dataset.endswith(_BETWEEN + run)), None)


def in_ids_of(text: DatasetConfig, model: PretrainedModel, *, trained: bool) -> DatasetConfig:
    """Return a dataset with the tokenizer of a model, of the hub as it is today without a revision.

    One that nothing trains on is as long as what is held out of it.
    """
    revision = None if model.folder else model.revision or "main"
    ids = HuggingFaceTokenizer(
        kind="huggingface", name=str(model.folder or model.name), revision=revision, of_model=True
    )
    changes: dict[str, Any] = {"tokenizer": ids}
    if not trained and (held_out := text.validation_budget) is not None:
        changes |= {"tokens": held_out, "validation_tokens": held_out}
    return text.model_copy(update=changes)
