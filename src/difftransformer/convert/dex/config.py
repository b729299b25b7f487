"""Settings of Dex as peft keeps them, in adapter_config.json."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from peft import PeftConfig

from difftransformer.convert.dex.registration import DEX
from difftransformer.errors import ConfigError, lookup
from difftransformer.models.differential import LambdaSchedule

PROJECTIONS = ["k_proj", "v_proj", "o_proj"]
"""What trains: W_K, W_V, W_O (section 3.4); the last is where heads are changed."""


@dataclass
class DexConfig(PeftConfig):
    """What of a model Dex changes, and how.

    Attributes:
        heads: Heads that are changed: "all", "none" (only the projections train, the control),
            indices in every layer, or indices by layer under the layer's number as text.
        difference: W_D: "layer" has one for all selected heads of a layer, "head" one for each.
        start: W_D at the start: "random" as `torch.nn.Linear` draws it, or "zero".
        lambda_schedule: What lambda is at step t, see `tuner.lambda_at`.
        lambda_init: A number, or "exponential" for DIFF V1's schedule by depth.
        annealing_steps: T of equation 4.
        seed: Seed of W_D; each layer has a generator of its own.
        unfolded: Compute equation 5 on the outputs of the heads, as the paper writes it. Otherwise
            it is folded into W_O at every step, which is the same function and costs less.
        target_modules: Names of the projections of keys, values and outputs.
    """

    heads: str | list[int] | dict[str, list[int]] = field(default="all")
    difference: str = field(default="layer")
    start: str = field(default="random")
    lambda_schedule: str = field(default="annealed")
    lambda_init: Literal["exponential"] | float = field(default="exponential")
    annealing_steps: int = field(default=0)
    seed: int = field(default=0)
    unfolded: bool = field(default=False)
    target_modules: list[str] | str | None = field(default_factory=lambda: list(PROJECTIONS))

    def __post_init__(self) -> None:
        super().__post_init__()  # type: ignore[no-untyped-call]
        self.peft_type = DEX
        choices = {
            "difference": ("layer", "head"),
            "start": ("random", "zero"),
            "lambda_schedule": get_args(LambdaSchedule),
        }
        for key, known in choices.items():
            lookup(dict.fromkeys(known, ()), getattr(self, key), "value", f"DexConfig.{key}")
        if self.heads not in ("all", "none") and not isinstance(self.heads, list | dict):
            raise ConfigError(
                f"DexConfig.heads: {self.heads!r} is neither 'all', 'none' nor a list of heads; "
                "heads chosen by data come from `select_heads`"
            )
        if isinstance(self.lambda_init, str) and self.lambda_init != "exponential":
            raise ConfigError(
                f"DexConfig.lambda_init: {self.lambda_init!r} is neither a number nor 'exponential'"
            )
        if self.annealing_steps < 0:
            raise ConfigError(f"DexConfig.annealing_steps: {self.annealing_steps} is negative")

    def heads_of(self, layer: int, number: int) -> list[int]:
        """Heads of a layer that are changed, ascending; ``number``: all it has.

        Raises:
            ConfigError: One is not there, or none is named.
        """
        if self.heads == "all":
            return list(range(number))
        if self.heads == "none":
            return []
        named = self.heads
        if isinstance(named, dict):
            if str(layer) not in named:
                raise ConfigError(f"DexConfig.heads: layer {layer} is not named; give it heads")
            named = named[str(layer)]
        assert isinstance(named, list)
        found = sorted(set(named))
        if not found:
            raise ConfigError(f"DexConfig.heads: layer {layer} has none; name one at least")
        for head in (found[0], found[-1]):
            if not 0 <= head < number:
                raise ConfigError(
                    f"DexConfig.heads: {head} is no head of layer {layer}, which has 0 to "
                    f"{number - 1}"
                )
        return found
