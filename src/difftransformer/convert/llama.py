"""Exact conversion to and from transformers' own Llama and DiffLlama, so other tools need no code.

`softmax` is Llama: the same rotary layout, our fused matrices split. `diff_v1` is DiffLlama, with
two differences of layout: it holds the first heads of all pairs before all second ones (ours lie
side by side), halves of values likewise; and its headwise norm has no gain, so ours goes into the
columns of the output projection that it scales.

Shapes: D = d_model, n = heads of a kind (H output, G key/value heads), d = head_dim.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import torch
from torch import Tensor

from difftransformer.convert.checkpoint import CONFIG, WEIGHTS, save_weights
from difftransformer.errors import CheckpointError
from difftransformer.models.attention.registry import VARIANT_BY_HF_TYPE, configure
from difftransformer.models.config import AttentionConfig, ModelConfig
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_text

if TYPE_CHECKING:
    # Imported for types only: otherwise an edit of V1 would rerun the adaptations of every Llama.
    from transformers import PreTrainedConfig, PreTrainedModel

    from difftransformer.models.attention.diff_v1 import DiffV1Config
    from difftransformer.models.attention.softmax import SoftmaxConfig

_CLASSES = {"llama": "Llama", "diffllama": "DiffLlama"}
"""Upstream's name of each model type."""
_SETTINGS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "num_layers",
    "max_position_embeddings": "max_positions",
    "rms_norm_eps": "norm_eps",
    "tie_word_embeddings": "tie_embeddings",
}
"""Our name of each upstream setting that is a number of ours."""
_NAMES = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "lm_head.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attention_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn.down_proj.weight": "mlp.down_proj.weight",
    "attention.o_proj.weight": "self_attn.o_proj.weight",
}
_DIFF_NAMES = {
    f"attention.lambda_{name}": f"self_attn.lambda_{name}" for name in ("q1", "k1", "q2", "k2")
}


def to_llama(model: Transformer, kind: str) -> "PreTrainedModel":
    """Return ``model`` as transformers' own model of the same function.

    Args:
        model: The model; its weights are copied.
        kind: "llama" or "diffllama".

    Raises:
        CheckpointError: If the upstream model cannot express it.
    """
    import transformers

    options = llama_config_kwargs(model.config, kind)
    config = getattr(transformers, f"{_CLASSES[kind]}Config")(**options)
    upstream: PreTrainedModel = getattr(transformers, f"{_CLASSES[kind]}ForCausalLM")(config)
    upstream.load_state_dict(llama_state_dict(model))
    upstream.train(False)
    return upstream


def save_llama(
    folder: Path, model: Transformer, kind: str, eos_token_id: int | None = None
) -> None:
    """Write ``model`` as transformers would write `to_llama` of it, without transformers.

    Raises:
        CheckpointError: If the upstream model cannot express it.
    """
    content = llama_config_kwargs(model.config, kind) | {
        "architectures": [f"{_CLASSES[kind]}ForCausalLM"],
        "attention_bias": False,
        "dtype": str(model.output_weight.dtype).removeprefix("torch."),
        "eos_token_id": eos_token_id,
        "hidden_act": "silu",
        "model_type": kind,
    }
    weights = llama_state_dict(model)
    if model.config.tie_embeddings:
        del weights["lm_head.weight"]
    save_weights(folder / WEIGHTS, weights)
    write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")


def from_llama(upstream: "PreTrainedModel", backend: str = "sdpa") -> Transformer:
    """Return our model of the same function as an upstream Llama or DiffLlama, gains of norms 1.

    Raises:
        CheckpointError: If we cannot express it (biases, scaled rotary positions, ...).
    """
    config = config_from_llama(upstream.config)
    model = Transformer(config, backend)
    theirs = {name: tensor.detach() for name, tensor in upstream.state_dict().items()}
    ours = {mine: theirs[other] for mine, other in _NAMES.items() if mine in model.state_dict()}
    attention = config.attention
    paired = _is_diffllama(attention)
    names = _LAYER_NAMES | (_DIFF_NAMES if paired else {})
    for index in range(config.num_layers):
        mine, other = f"layers.{index}.", f"model.layers.{index}."
        ours |= {mine + a: theirs[other + b] for a, b in names.items()}
        qkv = [theirs[f"{other}self_attn.{part}_proj.weight"] for part in "qkv"]
        if paired:
            qkv = [_swapped(rows, 2, -1, attention.head_dim) for rows in qkv]
            gain = theirs[other + "self_attn.lambda_q1"].new_ones(2 * attention.head_dim)
            ours[mine + "attention.head_norm.weight"] = gain
        ours[mine + "attention.qkv_proj.weight"] = torch.cat(qkv)
        gate_up = [theirs[f"{other}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        ours[mine + "ffn.gate_up_proj.weight"] = torch.cat(gate_up)
    model.load_state_dict(ours)
    return model.eval()


def llama_state_dict(model: Transformer) -> dict[str, Tensor]:
    """Return the upstream weights by name, as differentiable functions of ours."""
    attention = model.config.attention
    paired = _is_diffllama(attention)
    ours: dict[str, Tensor] = dict(model.named_parameters())
    theirs = {other: ours[mine] for mine, other in _NAMES.items() if mine in ours}
    theirs.setdefault("lm_head.weight", model.output_weight)
    H, G = attention.output_heads, attention.kv_heads
    widths = [n * attention.value_dim for n in (H, G, G)]
    names = _LAYER_NAMES | (_DIFF_NAMES if paired else {})
    for index in range(model.config.num_layers):
        mine, other = f"layers.{index}.", f"model.layers.{index}."
        theirs |= {other + b: ours[mine + a] for a, b in names.items()}
        qkv = torch.split(ours[mine + "attention.qkv_proj.weight"], widths)
        if paired:
            qkv = tuple(_swapped(rows, -1, 2, attention.head_dim) for rows in qkv)
            gain = ours[mine + "attention.head_norm.weight"]
            o_proj = other + "self_attn.o_proj.weight"
            theirs[o_proj] = gain.repeat(H) * theirs[o_proj]
        for part, rows in zip("qkv", qkv, strict=True):
            theirs[f"{other}self_attn.{part}_proj.weight"] = rows
        halves = ours[mine + "ffn.gate_up_proj.weight"].chunk(2)
        for part, rows in zip(("gate", "up"), halves, strict=True):
            theirs[f"{other}mlp.{part}_proj.weight"] = rows
    return theirs


def llama_config_kwargs(config: ModelConfig, kind: str) -> dict[str, Any]:
    """Return the arguments of LlamaConfig or DiffLlamaConfig for a model of ours.

    Raises:
        CheckpointError: If that upstream model cannot express it.
    """
    attention = config.attention
    _check_expressible(config, attention, kind)
    maps = attention.value_dim // attention.head_dim  # softmax maps of one output head
    return {
        **{theirs: getattr(config, ours) for theirs, ours in _SETTINGS.items()},
        "num_attention_heads": maps * attention.output_heads,
        "num_key_value_heads": maps * attention.kv_heads,
        "head_dim": attention.head_dim,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "bos_token_id": None,
        "eos_token_id": None,
    }


def config_from_llama(upstream: "PreTrainedConfig") -> ModelConfig:
    """Return our settings of an upstream Llama or DiffLlama config.

    Raises:
        CheckpointError: If we cannot express it.
    """
    kind = upstream.model_type
    if kind not in VARIANT_BY_HF_TYPE:
        raise CheckpointError(
            f"cannot import model type {kind!r}; known: {', '.join(VARIANT_BY_HF_TYPE)}"
        )
    rope = upstream.rope_parameters
    for key, found, wanted in (
        ("hidden_act", upstream.hidden_act, "silu"),
        ("attention_bias", upstream.attention_bias, False),
        ("mlp_bias", getattr(upstream, "mlp_bias", False), False),
        ("rope_parameters.rope_type", rope["rope_type"], "default"),
    ):
        if found != wanted:
            raise CheckpointError(f"cannot import {kind}: {key} is {found!r}, ours has {wanted!r}")
    maps = 2 if kind == "diffllama" else 1
    attention = {
        "variant": VARIANT_BY_HF_TYPE[kind],
        "num_heads": upstream.num_attention_heads // maps,
        "num_kv_heads": upstream.num_key_value_heads // maps,
        "head_dim": upstream.head_dim,
        **({"norm_eps": upstream.rms_norm_eps} if kind == "diffllama" else {}),
    }
    return ModelConfig(
        **{ours: getattr(upstream, theirs) for theirs, ours in _SETTINGS.items()},
        attention=configure(attention, upstream.hidden_size),
        rope_theta=rope["rope_theta"],
    )


def _check_expressible(config: ModelConfig, attention: AttentionConfig, kind: str) -> None:
    def refuse(why: str) -> NoReturn:
        raise CheckpointError(
            f"cannot export to {kind}: {why}; format huggingface keeps it as it is"
        )

    if kind not in VARIANT_BY_HF_TYPE:
        raise CheckpointError(
            f"unknown model type {kind!r}; known: {', '.join(VARIANT_BY_HF_TYPE)}"
        )
    if attention.variant != VARIANT_BY_HF_TYPE[kind]:
        refuse(
            f"the model's attention is {attention.variant}, {kind} is {VARIANT_BY_HF_TYPE[kind]}"
        )
    if _is_llama(attention):
        if attention.norm:
            refuse("Llama has no headwise norm")
        if attention.gain is not None:
            refuse("Llama has no headwise gain")
        if config.d_model % attention.output_heads:
            refuse(f"Llama wants num_heads ({attention.output_heads}) to divide d_model")
    if _is_diffllama(attention):
        if not attention.norm:
            refuse("DiffLlama always has the headwise norm")
        if attention.lambda_init != "exponential":
            refuse(f"DiffLlama's lambda_init is exponential, not {attention.lambda_init}")
        if attention.lambda_fixed is not None:
            refuse(f"DiffLlama learns lambda, here it is {attention.lambda_fixed}")
        if attention.norm_eps != config.norm_eps:
            refuse(f"DiffLlama has one norm_eps, here {attention.norm_eps} and {config.norm_eps}")


def _is_llama(attention: AttentionConfig) -> "TypeGuard[SoftmaxConfig]":
    return attention.variant == VARIANT_BY_HF_TYPE["llama"]


def _is_diffllama(attention: AttentionConfig) -> "TypeGuard[DiffV1Config]":
    return attention.variant == VARIANT_BY_HF_TYPE["diffllama"]


def _swapped(rows: Tensor, outer: int, inner: int, head_dim: int) -> Tensor:
    """Reorder rows [outer, inner, d] to [inner, outer, d]; from n pairs to 2 halves, or back."""
    return rows.reshape(outer, inner, head_dim, rows.shape[-1]).transpose(0, 1).flatten(0, 2)
