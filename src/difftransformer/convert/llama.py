"""Exact conversion to and from transformers' Llama and DiffLlama.

`softmax` is Llama: the same rotary layout, our fused matrices split. `diff_v1` is DiffLlama, with
two differences: DiffLlama orders the first heads of all pairs before all second ones, where ours
has pairs next to each other (halves of values likewise); and its per-head norm has no weight, so
our weight is multiplied into the columns of the output projection.

Shapes: D = d_model, n = number of heads (H output, G key/value heads), d = head_dim.
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

_CLASS_PREFIXES = {"llama": "Llama", "diffllama": "DiffLlama"}
"""Prefix of transformers' class names, by model type."""
_SETTINGS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "num_layers",
    "max_position_embeddings": "max_positions",
    "rms_norm_eps": "norm_eps",
    "tie_word_embeddings": "tie_embeddings",
}
"""Our name of each setting of LlamaConfig that has an equivalent."""
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


def to_llama(model: Transformer, model_type: str) -> "PreTrainedModel":
    """Return ``model`` as a transformers Llama or DiffLlama that computes the same function.

    Args:
        model: The model; its weights are copied.
        model_type: "llama" or "diffllama".

    Raises:
        CheckpointError: The model type cannot express the model.
    """
    import transformers

    options = llama_config_kwargs(model.config, model_type)
    config = getattr(transformers, f"{_CLASS_PREFIXES[model_type]}Config")(**options)
    hf_model: PreTrainedModel = getattr(transformers, f"{_CLASS_PREFIXES[model_type]}ForCausalLM")(
        config
    )
    hf_model.load_state_dict(llama_state_dict(model))
    hf_model.train(False)
    return hf_model


def save_llama(
    folder: Path, model: Transformer, model_type: str, eos_token_id: int | None = None
) -> None:
    """Write the folder that transformers would save for `to_llama`'s result, without transformers.

    Raises:
        CheckpointError: The model type cannot express the model.
    """
    content = llama_config_kwargs(model.config, model_type) | {
        "architectures": [f"{_CLASS_PREFIXES[model_type]}ForCausalLM"],
        "attention_bias": False,
        "dtype": str(model.output_weight.dtype).removeprefix("torch."),
        "eos_token_id": eos_token_id,
        "hidden_act": "silu",
        "model_type": model_type,
    }
    weights = llama_state_dict(model)
    if model.config.tie_embeddings:
        del weights["lm_head.weight"]
    save_weights(folder / WEIGHTS, weights)
    write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")


def from_llama(hf_model: "PreTrainedModel", backend: str = "sdpa") -> Transformer:
    """Return our model that computes the same function as a transformers Llama or DiffLlama.

    The weights of per-head norms are 1.

    Raises:
    CheckpointError: Our models cannot express it (biases, scaled rotary positions, ...).
    """
    config = config_from_llama(hf_model.config)
    model = Transformer(config, backend)
    hf_weights = {name: tensor.detach() for name, tensor in hf_model.state_dict().items()}
    weights = {
        name: hf_weights[hf_name] for name, hf_name in _NAMES.items() if name in model.state_dict()
    }
    attention = config.attention
    is_diffllama = _is_diffllama(attention)
    names = _LAYER_NAMES | (_DIFF_NAMES if is_diffllama else {})
    for index in range(config.num_layers):
        prefix, hf_prefix = f"layers.{index}.", f"model.layers.{index}."
        weights |= {
            prefix + name: hf_weights[hf_prefix + hf_name] for name, hf_name in names.items()
        }
        qkv = [hf_weights[f"{hf_prefix}self_attn.{part}_proj.weight"] for part in "qkv"]
        if is_diffllama:
            qkv = [_transpose_heads(rows, 2, -1, attention.head_dim) for rows in qkv]
            gain = hf_weights[hf_prefix + "self_attn.lambda_q1"].new_ones(2 * attention.head_dim)
            weights[prefix + "attention.head_norm.weight"] = gain
        weights[prefix + "attention.qkv_proj.weight"] = torch.cat(qkv)
        gate_up = [hf_weights[f"{hf_prefix}mlp.{part}_proj.weight"] for part in ("gate", "up")]
        weights[prefix + "ffn.gate_up_proj.weight"] = torch.cat(gate_up)
    model.load_state_dict(weights)
    return model.eval()


def llama_state_dict(model: Transformer) -> dict[str, Tensor]:
    """Return a model's weights by transformers' Llama names and in Llama's layout.

    The tensors are differentiable functions of the model's parameters.
    """
    attention = model.config.attention
    is_diffllama = _is_diffllama(attention)
    weights: dict[str, Tensor] = dict(model.named_parameters())
    hf_weights = {hf_name: weights[name] for name, hf_name in _NAMES.items() if name in weights}
    hf_weights.setdefault("lm_head.weight", model.output_weight)
    H, G = attention.output_heads, attention.kv_heads
    widths = [n * attention.value_dim for n in (H, G, G)]
    names = _LAYER_NAMES | (_DIFF_NAMES if is_diffllama else {})
    for index in range(model.config.num_layers):
        prefix, hf_prefix = f"layers.{index}.", f"model.layers.{index}."
        hf_weights |= {
            hf_prefix + hf_name: weights[prefix + name] for name, hf_name in names.items()
        }
        qkv = torch.split(weights[prefix + "attention.qkv_proj.weight"], widths)
        if is_diffllama:
            qkv = tuple(_transpose_heads(rows, -1, 2, attention.head_dim) for rows in qkv)
            gain = weights[prefix + "attention.head_norm.weight"]
            o_proj = hf_prefix + "self_attn.o_proj.weight"
            hf_weights[o_proj] = gain.repeat(H) * hf_weights[o_proj]
        for part, rows in zip("qkv", qkv, strict=True):
            hf_weights[f"{hf_prefix}self_attn.{part}_proj.weight"] = rows
        halves = weights[prefix + "ffn.gate_up_proj.weight"].chunk(2)
        for part, rows in zip(("gate", "up"), halves, strict=True):
            hf_weights[f"{hf_prefix}mlp.{part}_proj.weight"] = rows
    return hf_weights


def llama_config_kwargs(config: ModelConfig, model_type: str) -> dict[str, Any]:
    """Return the arguments of LlamaConfig or DiffLlamaConfig that describe one of our models.

    Raises:
        CheckpointError: The model type cannot express the model.
    """
    attention = config.attention
    _check_expressible(config, attention, model_type)
    maps = attention.value_dim // attention.head_dim  # softmax maps of one output head
    return {
        **{hf_name: getattr(config, name) for hf_name, name in _SETTINGS.items()},
        "num_attention_heads": maps * attention.output_heads,
        "num_key_value_heads": maps * attention.kv_heads,
        "head_dim": attention.head_dim,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "bos_token_id": None,
        "eos_token_id": None,
    }


def config_from_llama(hf_config: "PreTrainedConfig") -> ModelConfig:
    """Return our model settings that correspond to a LlamaConfig or DiffLlamaConfig.

    Raises:
        CheckpointError: Our models cannot express the config.
    """
    model_type = hf_config.model_type
    if model_type not in VARIANT_BY_HF_TYPE:
        raise CheckpointError(
            f"cannot import model type {model_type!r}; known: {', '.join(VARIANT_BY_HF_TYPE)}"
        )
    rope = hf_config.rope_parameters
    for key, value, required in (
        ("hidden_act", hf_config.hidden_act, "silu"),
        ("attention_bias", hf_config.attention_bias, False),
        ("mlp_bias", getattr(hf_config, "mlp_bias", False), False),
        ("rope_parameters.rope_type", rope["rope_type"], "default"),
    ):
        if value != required:
            raise CheckpointError(
                f"cannot import {model_type}: {key} is {value!r}, ours has {required!r}"
            )
    maps = 2 if model_type == "diffllama" else 1
    attention = {
        "variant": VARIANT_BY_HF_TYPE[model_type],
        "num_heads": hf_config.num_attention_heads // maps,
        "num_kv_heads": hf_config.num_key_value_heads // maps,
        "head_dim": hf_config.head_dim,
        **({"norm_eps": hf_config.rms_norm_eps} if model_type == "diffllama" else {}),
    }
    return ModelConfig(
        **{name: getattr(hf_config, hf_name) for hf_name, name in _SETTINGS.items()},
        attention=configure(attention, hf_config.hidden_size),
        rope_theta=rope["rope_theta"],
    )


def _check_expressible(config: ModelConfig, attention: AttentionConfig, model_type: str) -> None:
    def refuse(reason: str) -> NoReturn:
        raise CheckpointError(f"cannot export to {model_type}: {reason}; format huggingface can")

    if model_type not in VARIANT_BY_HF_TYPE:
        raise CheckpointError(
            f"unknown model type {model_type!r}; known: {', '.join(VARIANT_BY_HF_TYPE)}"
        )
    if attention.variant != (variant := VARIANT_BY_HF_TYPE[model_type]):
        refuse(f"the model's attention is {attention.variant}, {model_type} is {variant}")
    if _is_llama(attention):
        if attention.norm:
            refuse("Llama has no per-head norm")
        if attention.gain is not None:
            refuse("Llama has no per-head gain")
        if config.d_model % attention.output_heads:
            refuse(f"Llama needs num_heads ({attention.output_heads}) to divide d_model")
    if _is_diffllama(attention):
        if not attention.norm:
            refuse("DiffLlama always has the per-head norm")
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


def _transpose_heads(rows: Tensor, outer: int, inner: int, head_dim: int) -> Tensor:
    """Reorder rows [outer, inner, d] to [inner, outer, d]: n pairs to 2 halves, or back."""
    return rows.reshape(outer, inner, head_dim, rows.shape[-1]).transpose(0, 1).flatten(0, 2)
