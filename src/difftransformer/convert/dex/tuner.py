"""Layers of Dex and the peft tuner that injects them (arXiv 2505.16333, equations 3 to 5).

    eq. 5   O'_h = O_h - lambda(t) O_h W_D      for the selected heads h of a layer
    eq. 4   lambda(t) = (1 - a) (t / T) lambda_init + a lambda_learn,    a = min(1, t / T)

and the concatenated heads are multiplied by W_O. Folded, with W_O,h the columns of head h in W_O:

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
    """Return lambda of a layer at a training step, by ``config.lambda_schedule``.

    annealed is equation 4; learned and learned_from_zero are lambda_learn, initialized to
    lambda_init or zero; ramped rises to lambda_init over T steps; fixed is lambda_init.

    Args:
        step: Number of steps done, t, a float scalar.
        learned: lambda_learn, a scalar.
        initial: lambda_init of the layer.
        config: The schedule and T; with T = 0 annealing is over at once.
    """
    schedule = config.lambda_schedule
    if schedule in ("learned", "learned_from_zero"):
        return learned
    if schedule == "fixed" or config.annealing_steps == 0:
        return learned if schedule == "annealed" else torch.full_like(learned, initial)
    a = (step / config.annealing_steps).clamp(max=1.0)
    if schedule == "ramped":
        return a * initial
    return (1 - a) * a * initial + a * learned


def subtract_difference(heads: Tensor, difference: Tensor, lam: Tensor) -> Tensor:
    """Return the outputs of selected heads after Dex, O - lambda O W_D (equation 5), [..., k, e].

    ``heads`` are [..., k, e]; W_D, ``difference``, is [e, e] or [k, e, e].
    """
    if difference.dim() == 3:
        return heads - lam * torch.einsum("...ke,kef->...kf", heads, difference)
    return heads - lam * (heads @ difference)


class DexLinear(nn.Module, BaseTunerLayer):
    """A key or value projection of Dex: the base layer with a trainable copy of its weight."""

    adapter_layer_names: tuple[str, ...] = ("dex_weight",)

    def __init__(self, base_layer: nn.Linear, adapter_name: str, config: DexConfig) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.dex_weight = nn.ParameterDict()
        self._create_parameters()
        self.merged_adapters: list[str] = []
        self._unmerged_weight: Tensor | None = None
        self._active_adapter = adapter_name
        self.update_layer(adapter_name, config)

    def _create_parameters(self) -> None:
        """Create the containers of a subclass's parameters."""

    def update_layer(self, adapter_name: str, config: DexConfig) -> None:
        """Add an adapter to the projection; its output stays the same until training."""
        self.dex_weight[adapter_name] = nn.Parameter(self.base_layer.weight.detach().clone())
        self._add_parameters(adapter_name, config)
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def _add_parameters(self, adapter_name: str, config: DexConfig) -> None:
        """Add a subclass's parameters of an adapter."""

    def folded_weight(self, adapter_name: str) -> Tensor:
        """Return the weight with which a plain linear layer computes the same function."""
        weight: Tensor = self.dex_weight[adapter_name]
        return weight

    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Replace the base layer's weight by the result of `folded_weight`.

        Raises:
            ValueError: With ``safe_merge``, the folded weight is not finite.
        """
        names = check_adapters_to_merge(self, adapter_names)
        if not names:
            return
        name = self._single(names)
        weight = self.folded_weight(name).detach()
        if safe_merge and not torch.isfinite(weight).all():
            raise ValueError(f"adapter {name} has non-finite weights")
        base_weight = self._base_weight()
        self._unmerged_weight = base_weight.data
        base_weight.data = weight.to(base_weight.dtype, copy=True)
        self.merged_adapters.append(name)

    def unmerge(self) -> None:
        """Restore exactly the weight that the base layer had before `merge`."""
        if self._unmerged_weight is not None:
            self._base_weight().data = self._unmerged_weight
            self._unmerged_weight = None
            self.merged_adapters.clear()

    def forward(self, x: Tensor) -> Tensor:
        """Return the projection of ``x``: [..., in] -> [..., out]."""
        if self.disable_adapters and self.merged:
            self.unmerge()
        if self.disable_adapters or self.merged or not self.active_adapters:
            out: Tensor = self.base_layer(x)
            return out
        return self._adapted(x, self._single(self.active_adapters))

    def _adapted(self, x: Tensor, name: str) -> Tensor:
        return self._linear(x, self.folded_weight(name))

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        bias: Tensor | None = self.base_layer.bias
        bias = None if bias is None else bias.to(weight.dtype)
        if torch.is_autocast_enabled(x.device.type):  # which casts the inputs
            return F.linear(x, weight, bias)
        return F.linear(x.to(weight.dtype), weight, bias).to(x.dtype)

    def _base_weight(self) -> nn.Parameter:
        weight: nn.Parameter = self.get_base_layer().get_parameter("weight")
        return weight

    def _single(self, names: list[str]) -> str:
        if len(names) > 1:
            raise ValueError(f"Dex supports one active adapter, got {', '.join(names)}")
        return names[0]


class DexOutput(DexLinear):
    """An output projection of Dex: equation 5 changes selected heads of its input.

    Its weight is trained, too.
    """

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

    def _create_parameters(self) -> None:
        self.dex_difference, self.dex_lambda = nn.ParameterDict(), nn.ParameterDict()
        self.dex_heads, self.dex_step = BufferDict(persistent=True), BufferDict(persistent=True)
        self.frozen_peft_weight_names = {}

    def _add_parameters(self, adapter_name: str, config: DexConfig) -> None:
        self.configs[adapter_name] = config
        heads = config.selected_heads(self.layer, self.num_heads)
        if not heads:
            return
        weight = self.base_layer.weight
        e = weight.shape[1] // self.num_heads
        shape = (len(heads), e, e) if config.difference == "head" else (e, e)
        difference = torch.zeros(shape, dtype=weight.dtype)
        if config.start == "random":
            seed = zlib.crc32(f"{config.seed}:{self.layer}".encode())
            generator = torch.Generator().manual_seed(seed)
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
        """Return lambda at the current step t, a scalar.

        t is the number of steps passed to `DexModel.advance`.
        """
        return lambda_at(
            self.dex_step[adapter_name],
            self.dex_lambda[adapter_name],
            resolve_lambda_init(self.configs[adapter_name].lambda_init, self.layer),
            self.configs[adapter_name],
        )

    def folded_weight(self, adapter_name: str) -> Tensor:
        """Return W_O with equation 5 folded in, [D, H e], for use without Dex."""
        weight: Tensor = self.dex_weight[adapter_name]
        if adapter_name not in self.dex_difference:
            return weight
        heads, lam = self.dex_heads[adapter_name], self.current_lambda(adapter_name)
        by_head: Tensor = weight.view(len(weight), self.num_heads, -1)
        transposed = self.dex_difference[adapter_name].mT
        folded = subtract_difference(by_head[:, heads], transposed, lam)
        return by_head.index_copy(1, heads, folded.to(by_head.dtype)).flatten(1)

    def _adapted(self, x: Tensor, name: str) -> Tensor:
        if not self.configs[name].unfolded or name not in self.dex_difference:
            return super()._adapted(x, name)
        heads, lam = self.dex_heads[name], self.current_lambda(name)
        by_head = x.view(*x.shape[:-1], self.num_heads, -1)
        selected = subtract_difference(by_head[..., heads, :], self.dex_difference[name], lam)
        inputs = by_head.index_copy(by_head.dim() - 2, heads, selected.to(x.dtype)).flatten(-2)
        return self._linear(inputs, self.dex_weight[name])


class DexModel(BaseTuner):
    """The peft tuner that adds Dex to a model; `merge_and_unload` returns an equal plain model."""

    prefix = "dex_"
    tuner_layer_cls = DexLinear
    target_module_mapping = {}  # noqa: RUF012 - as peft declares it; targets are in the settings

    def advance(self, steps: int = 1) -> None:
        """Advance the step counter t of lambda's schedule by ``steps``."""
        for layer in self.output_layers():
            for name in self.active_adapters:
                if name in layer.dex_step:
                    layer.dex_step[name] += steps

    def output_layers(self) -> list[DexOutput]:
        """Return the Dex output projections of the model, in layer order."""
        return [module for module in self.model.modules() if isinstance(module, DexOutput)]

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
        layer: DexLinear
        if target_name == PROJECTIONS[-1]:
            layer = DexOutput(
                target,
                adapter_name,
                peft_config,
                layer=_layer_index(current_key),
                num_heads=num_heads(self.model),
            )
        else:
            layer = DexLinear(target, adapter_name, peft_config)
        if adapter_name not in self.active_adapters:
            layer.requires_grad_(False)
        self._replace_module(parent, target_name, layer, target)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules that have key, value and output projections, in layer order."""
    return [
        module for module in model.modules() if all(hasattr(module, name) for name in PROJECTIONS)
    ]


def num_heads(model: Any) -> int:
    """Return the number of output heads per layer of a model."""
    return int(model.config.get_text_config().num_attention_heads)


def trained_parameters(model: Any) -> int:
    """Return the number of parameters that Dex trains with one W_D per layer.

    Raises:
        ConfigError: A projection is missing or quantized.
    """
    require_projections(model)
    total = 0
    for module in attention_modules(model):
        projections = [getattr(module, name) for name in PROJECTIONS]
        head_dim = projections[-1].in_features // num_heads(model)
        total += sum(linear.weight.numel() for linear in projections) + head_dim**2 + 1
    return total


def require_projections(model: nn.Module) -> None:
    """Check that a model's attention has the projections that Dex trains, as `nn.Linear`.

    Raises:
        ConfigError: A projection is missing or quantized.
    """
    name = type(model).__name__
    modules = attention_modules(model)
    if not modules:
        raise ConfigError(
            f"{name} has no attention with {', '.join(PROJECTIONS)}: Dex needs a "
            "decoder such as Llama, Qwen2, Qwen3, Mistral or Gemma"
        )
    for module in modules:
        for projection in PROJECTIONS:
            layer = getattr(module, projection)
            if not isinstance(layer, (nn.Linear, DexLinear)) or not hasattr(layer, "weight"):
                raise ConfigError(
                    f"{name}: {projection} is a {type(layer).__name__}, not nn.Linear: load the "
                    "model without quantization"
                )


def _layer_index(key: str) -> int:
    """Return the layer index in a module's path, such as model.layers.3.self_attn.o_proj."""
    indices = re.findall(r"\.(\d+)\.", f".{key}.")
    assert indices, key
    return int(indices[-1])


register_peft_method(name="dex", config_cls=DexConfig, model_cls=DexModel)
