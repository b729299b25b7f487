"""The layers of Dex, and the model that puts them in place (arXiv 2505.16333, equations 3 to 5).

    eq. 5   O'_h = O_h - lambda(t) O_h W_D      for the selected heads h of a layer
    eq. 4   lambda(t) = (1 - a) (t / T) lambda_init + a lambda_learn,    a = min(1, t / T)

and the heads meet W_O joined as before. Folded, with W_O,h the columns of W_O that head h meets:

    W_O,h <- W_O,h (I - lambda W_D)'

Shapes: D = hidden size, H = heads, e = width of a head's value, k = selected heads.
"""

import re
import zlib
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftConfig
from peft.tuners._buffer_dict import BufferDict
from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer, check_adapters_to_merge
from peft.utils import register_peft_method
from torch import Tensor, nn

from difftransformer.convert.dex.config import PROJECTIONS, DexConfig
from difftransformer.errors import ConfigError
from difftransformer.models.differential import resolve_lambda_init


def lambda_at(step: Tensor, learned: Tensor, initial: float, config: DexConfig) -> Tensor:
    """Lambda after so many steps, by the schedule of the settings.

    annealed is equation 4; learned and learned_from_zero are lambda_learn alone, from lambda_init
    or zero; ramped rises to lambda_init over T steps and stays; fixed is lambda_init.

    Args:
        step: t, steps done, a float scalar.
        learned: lambda_learn, a scalar.
        initial: lambda_init of the layer.
        config: The schedule and T; a T of 0 is over at once.
    """
    schedule = config.lambda_schedule
    if schedule in ("learned", "learned_from_zero"):
        return learned
    if schedule == "fixed" or config.annealing_steps == 0:
        return learned if schedule == "annealed" else torch.full_like(learned, initial)
    share = (step / config.annealing_steps).clamp(max=1.0)
    if schedule == "ramped":
        return share * initial
    return (1 - share) * share * initial + share * learned


def changed(heads: Tensor, difference: Tensor, lam: Tensor) -> Tensor:
    """Equation 5 on the outputs of selected heads, [..., k, e]; W_D is [e, e] or [k, e, e]."""
    if difference.dim() == 3:
        return heads - lam * torch.einsum("...ke,kef->...kf", heads, difference)
    return heads - lam * (heads @ difference)


class DexLinear(nn.Module, BaseTunerLayer):
    """A projection of keys or values: a copy of its weight trains in its place."""

    adapter_layer_names: tuple[str, ...] = ("dex_weight",)

    def __init__(self, base_layer: nn.Linear, adapter_name: str, config: DexConfig) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.dex_weight = nn.ParameterDict()
        self._make()
        self.merged_adapters: list[str] = []
        self._before_merging: Tensor | None = None
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config)

    def _make(self) -> None:
        """Make what a subclass has beside the weight."""

    def update_layer(self, adapter_name: str, config: DexConfig) -> None:
        """Add an adapter, which does nothing yet."""
        self.dex_weight[adapter_name] = nn.Parameter(self.base_layer.weight.detach().clone())
        self._fill(adapter_name, config)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def _fill(self, adapter_name: str, config: DexConfig) -> None:
        """Add what a subclass has beside the weight."""

    def folded_weight(self, adapter_name: str) -> Tensor:
        """Weight of a plain layer of the same function."""
        weight: Tensor = self.dex_weight[adapter_name]
        return weight

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Put the folded weight in the base layer's place.

        Raises:
            ValueError: It is not finite, where that is to be checked.
        """
        names = check_adapters_to_merge(self, adapter_names)
        if not names:
            return
        name = self._only(names)
        weight = self.folded_weight(name).detach()
        if safe_merge and not torch.isfinite(weight).all():
            raise ValueError(f"adapter {name} has weights that are not finite")
        own = self._own_weight()
        self._before_merging = own.data
        own.data = weight.to(own.dtype, copy=True)
        self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Put the base's own weight back, to the bit."""
        if self._before_merging is not None:
            self._own_weight().data = self._before_merging
            self._before_merging = None
            self.merged_adapters.clear()

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        if self.disable_adapters and self.merged:
            self.unmerge()
        if self.disable_adapters or self.merged or not self.active_adapters:
            out: Tensor = self.base_layer(x)
            return out
        return self._adapted(x, self._only(self.active_adapters))

    def _adapted(self, x: Tensor, name: str) -> Tensor:
        return self._linear(x, self.folded_weight(name))

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        bias: Tensor | None = self.base_layer.bias
        own = None if bias is None else bias.to(weight.dtype)
        if torch.is_autocast_enabled(x.device.type):  # it casts, and what follows takes it as it is
            return F.linear(x, weight, own)
        return F.linear(x.to(weight.dtype), weight, own).to(x.dtype)

    def _own_weight(self) -> nn.Parameter:
        weight: nn.Parameter = self.get_base_layer().get_parameter("weight")
        return weight

    def _only(self, names: list[str]) -> str:
        if len(names) > 1:
            raise ValueError(f"Dex has one adapter at a time, not {', '.join(names)}")
        return names[0]


class DexOutput(DexLinear):
    """The output projection: its weight trains too, and selected heads are changed before it."""

    adapter_layer_names: tuple[str, ...] = ("dex_weight", "dex_difference", "dex_lambda")
    other_param_names: tuple[str, ...] = ("dex_heads", "dex_step")

    def __init__(
        self,
        base_layer: nn.Linear,
        adapter_name: str,
        config: DexConfig,
        *,
        layer: int,
        num_heads: int,
    ) -> None:
        self.layer, self.num_heads = layer, num_heads
        self.configs: dict[str, DexConfig] = {}
        super().__init__(base_layer, adapter_name, config)

    def _make(self) -> None:
        self.dex_difference, self.dex_lambda = nn.ParameterDict(), nn.ParameterDict()
        self.dex_heads, self.dex_step = BufferDict(persistent=True), BufferDict(persistent=True)
        self.frozen_peft_weight_names = {}

    def _fill(self, adapter_name: str, config: DexConfig) -> None:
        self.configs[adapter_name] = config
        heads = config.heads_of(self.layer, self.num_heads)
        if not heads:
            return
        weight = self.base_layer.weight
        e = weight.shape[1] // self.num_heads
        shape = (len(heads), e, e) if config.difference == "head" else (e, e)
        difference = torch.zeros(shape, dtype=weight.dtype)
        if config.start == "random":
            own = zlib.crc32(f"{config.seed}:{self.layer}".encode())
            generator = torch.Generator().manual_seed(own)
            difference.uniform_(-(e**-0.5), e**-0.5, generator=generator)
        learned = config.lambda_schedule == "learned"
        start = resolve_lambda_init(config.lambda_init, self.layer) if learned else 0.0
        self.dex_difference[adapter_name] = nn.Parameter(difference)
        self.dex_lambda[adapter_name] = nn.Parameter(torch.tensor(start, dtype=weight.dtype))
        self.dex_heads[adapter_name] = torch.tensor(heads)
        self.dex_step[adapter_name] = torch.zeros((), dtype=torch.int64)
        if config.lambda_schedule in ("ramped", "fixed"):
            self.frozen_peft_weight_names[adapter_name] = ("dex_lambda",)

    def current_lambda(self, adapter_name: str) -> Tensor:
        """lambda(t), a scalar; t counts the calls of `DexModel.advance`."""
        return lambda_at(
            self.dex_step[adapter_name],
            self.dex_lambda[adapter_name],
            resolve_lambda_init(self.configs[adapter_name].lambda_init, self.layer),
            self.configs[adapter_name],
        )

    def folded_weight(self, adapter_name: str) -> Tensor:
        """W_O with the change of the heads in it, [D, H e]."""
        weight: Tensor = self.dex_weight[adapter_name]
        if adapter_name not in self.dex_difference:
            return weight
        heads, lam = self.dex_heads[adapter_name], self.current_lambda(adapter_name)
        by_head: Tensor = weight.view(len(weight), self.num_heads, -1)
        transposed = self.dex_difference[adapter_name].mT
        folded = changed(by_head[:, heads], transposed, lam)
        return by_head.index_copy(1, heads, folded.to(by_head.dtype)).flatten(1)

    def _adapted(self, x: Tensor, name: str) -> Tensor:
        if not self.configs[name].unfolded or name not in self.dex_difference:
            return super()._adapted(x, name)
        heads, lam = self.dex_heads[name], self.current_lambda(name)
        by_head = x.view(*x.shape[:-1], self.num_heads, -1)
        own = changed(by_head[..., heads, :], self.dex_difference[name], lam)
        joined = by_head.index_copy(by_head.dim() - 2, heads, own.to(x.dtype)).flatten(-2)
        return self._linear(joined, self.dex_weight[name])


class DexModel(BaseTuner):
    """A model whose attention layers have Dex; `merge_and_unload` gives the plain model back."""

    prefix = "dex_"
    tuner_layer_cls = DexLinear
    target_module_mapping = {}  # noqa: RUF012 - as peft declares it; targets are in the settings

    def advance(self, steps: int = 1) -> None:
        """Count training steps, which the annealing of lambda goes by."""
        for layer in self.output_layers():
            for name in self.active_adapters:
                if name in layer.dex_step:
                    layer.dex_step[name] += steps

    def output_layers(self) -> list[DexOutput]:
        """The layers that change heads, in their order."""
        return [one for one in self.model.modules() if isinstance(one, DexOutput)]

    def _pre_injection_hook(self, model: nn.Module, config: PeftConfig, adapter_name: str) -> None:
        require_projections(model)

    def _create_and_replace(
        self,
        peft_config: PeftConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        assert isinstance(peft_config, DexConfig)
        if isinstance(target, DexLinear):
            target.update_layer(adapter_name, peft_config)
            return
        assert isinstance(target, nn.Linear)
        made: DexLinear
        if target_name == PROJECTIONS[-1]:
            made = DexOutput(
                target,
                adapter_name,
                peft_config,
                layer=_layer_index(current_key),
                num_heads=num_heads(self.model),
            )
        else:
            made = DexLinear(target, adapter_name, peft_config)
        if adapter_name not in self.active_adapters:
            made.requires_grad_(False)
        self._replace_module(parent, target_name, made, target)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Modules that have projections of keys, values and outputs, in their order."""
    return [
        module for module in model.modules() if all(hasattr(module, name) for name in PROJECTIONS)
    ]


def num_heads(model: Any) -> int:
    """Heads of a layer's output."""
    return int(model.config.get_text_config().num_attention_heads)


def trained_parameters(model: Any) -> int:
    """How many parameters train where each layer has one W_D of its own.

    Raises:
        ConfigError: As `require_projections`.
    """
    require_projections(model)
    sizes = 0
    for module in attention_modules(model):
        projections = [getattr(module, name) for name in PROJECTIONS]
        head_dim = projections[-1].in_features // num_heads(model)
        sizes += sum(one.weight.numel() for one in projections) + head_dim**2 + 1
    return sizes


def require_projections(model: nn.Module) -> None:
    """Check that a model's attention has the projections that Dex changes, as plain matrices.

    Raises:
        ConfigError: It has none, or quantized ones.
    """
    name = type(model).__name__
    found = attention_modules(model)
    if not found:
        raise ConfigError(
            f"{name} has no attention with {', '.join(PROJECTIONS)} of its own: Dex needs a "
            "decoder such as Llama, Qwen2, Qwen3, Mistral or Gemma"
        )
    for module in found:
        for own in PROJECTIONS:
            layer = getattr(module, own)
            if not isinstance(layer, (nn.Linear, DexLinear)) or not hasattr(layer, "weight"):
                raise ConfigError(
                    f"{name}: {own} is a {type(layer).__name__}, no plain matrix: load the model "
                    "without quantization"
                )


def _layer_index(key: str) -> int:
    """Number of the layer in a module's name, such as model.layers.3.self_attn.o_proj."""
    found = re.findall(r"\.(\d+)\.", f".{key}.")
    assert found, key
    return int(found[-1])


register_peft_method(name="dex", config_cls=DexConfig, model_cls=DexModel)
