"""Full training: every parameter, by AdamW."""

from difftransformer.config.training import TrainingConfig
from difftransformer.models.transformer import Transformer
from difftransformer.training.optimiser import AdamW


def prepare(model: Transformer, config: TrainingConfig) -> AdamW:
    """Return AdamW over all parameters that require a gradient."""
    return AdamW(model.named_parameters(), config)
