"""Full fine-tuning: all parameters, by AdamW."""

from typing import Literal

from difftransformer.config.base import setting
from difftransformer.models.language_model import HFCausalLM
from difftransformer.training.method import Method, MethodSettings, Task
from difftransformer.training.optimizer import AdamW


class Settings(MethodSettings):
    """Settings of full fine-tuning: none besides the method's name."""

    method: Literal["full"] = setting(meaning="Every parameter, by AdamW")


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Return the method that trains all parameters with AdamW."""
    return Method(AdamW(model.named_parameters(), task.training))
