"""The resolved slice of the configuration that one training job gets."""

from difftransformer.config.base import Settings, setting
from difftransformer.config.model import ModelConfig
from difftransformer.config.training import TrainingConfig


class RunSlice(Settings):
    """One run at one scale, resolved: nothing in it refers to another entry."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    dataset: str = setting(meaning="Name of the packed dataset it trains on.")
    model: ModelConfig = setting(meaning="The architecture.")
    training: TrainingConfig = setting(meaning="How it is trained.")
