"""Settings of Dex in peft's adapter_config.json."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from peft import PeftConfig

from difftransformer.convert.dex.registration import DEX
from difftransformer.errors import ConfigError, lookup
from difftransformer.models.differential import LambdaSchedule

PROJECTIONS = ["k_proj", "v_proj", "o_proj"]
"""Names of the trained projections W_K, W_V, W_O (section 3.4); Dex changes W_O's input."""


@dataclass
class DexConfig(PeftConfig):
    """Settings of a Dex adapter, as stored in peft's adapter_config.json.

    Attributes:
        heads: Selected heads: "all", "none" (only the projections train, the control), indices for
            every layer, or indices by layer, with the layer's number as a string key.
        difference: "layer": one W_D for all selected heads of a layer; "head": one per head.
        start: Initial W_D: "random" as in `torch.nn.Linear`, or "zero".
        lambda_schedule: Schedule of lambda over steps, see `tuner.lambda_at`.
        lambda_init: A number, or "exponential" for DIFF V1's schedule by depth.
        annealing_steps: T of equation 4.
        seed: Seed of W_D; each layer has its own generator.
        unfolded: Compute equation 5 on the head outputs, as in the paper. Otherwise it is folded
            into W_O at every step: the same function, and cheaper.
        target_modules: Names of the key, value and output projections.
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
        for key, values in choices.items():
            lookup(dict.fromkeys(values, ()), getattr(self, key), "value", f"DexConfig.{key}")
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

    def selected_heads(self, layer: int, num_heads: int) -> list[int]:
        """Return the indices of the heads that Dex changes in a layer, ascending.

        Raises:
            ConfigError: A head is out of range, or none is selected.
        """
        if self.heads == "all":
            return list(range(num_heads))
        if self.heads == "none":
            return []
        indices = self.heads
        if isinstance(indices, dict):
            if str(layer) not in indices:
                raise ConfigError(f"DexConfig.heads: layer {layer} is missing; add its heads")
            indices = indices[str(layer)]
        assert isinstance(indices, list)
        heads = sorted(set(indices))
        if not heads:
            raise ConfigError(f"DexConfig.heads: layer {layer} has none; name at least one")
        for head in (heads[0], heads[-1]):
            if not 0 <= head < num_heads:
                raise ConfigError(
                    f"DexConfig.heads: layer {layer} has heads 0 to {num_heads - 1}, got {head}"
                )
        return heads
