"""Datasets retokenized for a pretrained model; their names contain both names."""

from collections.abc import Iterable
from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.config.run import PretrainedModel
from difftransformer.config.tokenizers import HuggingFaceTokenizer

_BETWEEN = "_of_"


def name_of(text: str, run: str) -> str:
    """Return the name of dataset ``text`` when retokenized for the pretrained model of a run."""
    return text + _BETWEEN + run


def text_of(dataset: str, run: str) -> str:
    """Return the name of the original dataset from the name of a retokenized one."""
    return dataset.removesuffix(_BETWEEN + run)


def reader_of(dataset: str, runs: Iterable[str]) -> str | None:
    """Return the run among ``runs`` for whose model a dataset is retokenized, or None."""
    return next((run for run in runs if dataset.endswith(_BETWEEN + run)), None)


def in_ids_of(text: DatasetConfig, model: PretrainedModel, *, trained: bool) -> DatasetConfig:
    """Return the settings of a dataset with the tokenizer of a pretrained model.

    Args:
        text: Settings of the original dataset.
        model: The pretrained model; without a revision, the hub's current version is used.
        trained: Whether a run trains on the dataset. If not, its training split is only as long as
            its validation split.
    """
    revision = None if model.folder else model.revision or "main"
    ids = HuggingFaceTokenizer(
        kind="huggingface", name=str(model.folder or model.name), revision=revision, of_model=True
    )
    changes: dict[str, Any] = {"tokenizer": ids}
    if not trained and (held_out := text.validation_budget) is not None:
        changes |= {"tokens": held_out, "validation_tokens": held_out}
    return text.model_copy(update=changes)
