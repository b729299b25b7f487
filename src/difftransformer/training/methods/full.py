"""Full fine-tuning: all parameters, by AdamW."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Method, MethodSettings, Task
from difftransformer.training.optimizer import AdamW


class Settings(MethodSettings):
    """Full fine-tuning has no settings."""

    method: Literal["full"] = setting(meaning="Every parameter, by AdamW")


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Return the training of all parameters."""
    return Method(AdamW(model.named_parameters(), task.training))
