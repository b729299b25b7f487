"""Dex: a learned matrix changes heads of a trained model (arXiv 2505.16333)."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from difftransformer.config.base import distinct, setting
from difftransformer.models.config import ModelConfig
from difftransformer.models.differential import HeadChoice, LambdaSchedule
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.sizes import kvo_parameters
from difftransformer.training.method import Method, MethodSettings, Task

NamedHeads = Annotated[list[int], Field(min_length=1), AfterValidator(distinct)]


class Settings(MethodSettings):
    """Settings of Dex: selected heads, W_D and the schedule of lambda; defaults of the paper."""

    method: Literal["dex"] = setting(
        meaning="O'_h = O_h - lambda O_h W_D in selected heads; W_K, W_V, W_O train too"
    )
    heads: HeadChoice | Literal["all"] | NamedHeads = setting(
        "entropy",
        meaning="Heads that are changed in every layer: those with the highest entropy of "
        "attention, the lowest, those with the lowest importance, all, or these indices",
        source="arXiv 2505.16333, section 3.2",
    )
    share: float = setting(
        0.5,
        meaning="Share of a layer's heads that are chosen, rounded, one at least",
        source="arXiv 2505.16333, section 4.1: half",
        gt=0,
        le=1,
    )
    sequences: int = setting(
        32,
        meaning="Sequences of the training text that heads are chosen by",
        source="ours; not stated",
        gt=0,
    )
    difference: Literal["layer", "head"] = setting(
        "layer",
        meaning="One W_D for the selected heads of a layer, or one for each",
        source="figure 9 passes one; ours where it is not",
    )
    start: Literal["random", "zero"] = setting(
        "random",
        meaning="W_D at the start; a zero start could not give the instability that figure 11c "
        "reports without annealing",
        source="ours; not stated",
    )
    lambda_schedule: LambdaSchedule = setting(
        "annealed",
        meaning="lambda at a step. annealed: equation 4. learned, learned_from_zero: lambda_learn "
        "alone, from lambda_init or zero. ramped: rises to lambda_init and stays. fixed: "
        "lambda_init",
        source="arXiv 2505.16333, equation 4, table 4, figure 11c",
    )
    lambda_init: Literal["exponential"] | float = setting(
        "exponential",
        meaning="lambda_init, the same in all layers, or DIFF V1's schedule by depth",
        source="arXiv 2505.16333, table 5",
    )
    annealing: float = setting(
        0.3,
        meaning="T of equation 4 as a share of the run's steps",
        source="ours; not stated",
        ge=0,
        le=1,
    )

    @model_validator(mode="after")
    def _no_unused_settings(self) -> Self:
        for key, reason in self._unused().items():
            if key in self.model_fields_set:
                raise ValueError(f"{key} changes nothing with {reason}: leave it out")
        return self

    def _unused(self) -> dict[str, str]:
        """Return the settings without effect, each with the setting that makes it so."""
        unused = {}
        if isinstance(self.heads, list) or self.heads == "all":
            named = self.heads if isinstance(self.heads, str) else "a list of them"
            unused = dict.fromkeys(("share", "sequences"), f"heads: {named}")
        schedule = f"lambda_schedule: {self.lambda_schedule}"
        if self.lambda_schedule not in ("annealed", "ramped"):
            unused["annealing"] = schedule
        if self.lambda_schedule == "learned_from_zero":
            unused["lambda_init"] = schedule
        if self.lambda_schedule == "annealed" and self.annealing == 0:
            unused["lambda_init"] = "annealing: 0"
        return unused

    def require_fit(self, model: ModelConfig) -> None:
        """Check that the selected heads exist in the model."""
        number = model.attention.output_heads
        for head in self.heads if isinstance(self.heads, list) else ():
            if not 0 <= head < number:
                raise ValueError(
                    f"heads: {head} is no head of a layer, which has 0 to {number - 1}"
                )

    def trainable_parameters(self, model: ModelConfig) -> int:
        """Return the number of trainable parameters: those of KVO, and W_D and lambda per layer."""
        attention = model.attention
        heads, width = attention.output_heads, attention.head_dim
        chosen = len(self.heads) if isinstance(self.heads, list) else round(self.share * heads)
        chosen = heads if self.heads == "all" else max(1, chosen)
        matrices = chosen if self.difference == "head" else 1
        return model.num_layers * (kvo_parameters(model) + matrices * width**2 + 1)


def prepare(model: HFCausalLM, settings: Settings, task: Task) -> Method:
    """Select heads on the training text, add Dex to the model, and return its training method."""
    from difftransformer.convert.dex import DexConfig, select_heads
    from difftransformer.training.dex_method import DexMethod

    heads: str | list[int] | dict[str, list[int]]
    if isinstance(settings.heads, list) or settings.heads == "all":
        heads = settings.heads
    else:
        batches = task.batches(settings.sequences)
        heads = select_heads(model.inner, batches, settings.heads, settings.share)
    config = DexConfig(
        heads=heads,
        difference=settings.difference,
        start=settings.start,
        lambda_schedule=settings.lambda_schedule,
        lambda_init=settings.lambda_init,
        annealing_steps=round(settings.annealing * task.training.total_steps),
        seed=task.seed,
    )
    return DexMethod(model, config, task)
