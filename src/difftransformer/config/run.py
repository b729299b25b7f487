"""The resolved slices of the configuration that data and training jobs get."""

from difftransformer.config.base import Settings, setting
from difftransformer.config.data import DatasetConfig
from difftransformer.config.model import ModelConfig
from difftransformer.config.training import TrainingConfig


class RunSettings(Settings):
    """What the `set` of a run and the setups of a scale may hold, each a part of it."""

    model: ModelConfig = setting(meaning="The architecture.")
    training: TrainingConfig = setting(meaning="How it is trained.")


class RunSlice(Settings):
    """One run at one scale, resolved: nothing in it refers to another entry."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    dataset: str = setting(meaning="Name of the packed dataset it trains on.")
    init_from: str | None = setting(
        None, meaning="Run whose trained weights it starts from; null: from scratch."
    )
    model: ModelConfig = setting(meaning="The architecture.")
    training: TrainingConfig = setting(meaning="How it is trained.")


class DatasetSlice(Settings):
    """One dataset at one scale, resolved: what the data jobs get."""

    scale: str = setting(meaning="Name of the scale the dataset was resolved at.")
    dataset: str = setting(meaning="Name of the dataset in datasets.yaml.")
    config: DatasetConfig = setting(meaning="Sources, mixture, tokenizer and budgets.")
