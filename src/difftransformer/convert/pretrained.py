"""Load pretrained (external) models with transformers, without converting them."""

from typing import Any

from difftransformer.config.pretrained import sizes_of, source, unreadable
from difftransformer.config.run import PretrainedModel
from difftransformer.errors import ConfigError
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM


def load_hf_causal_lm(model: PretrainedModel, dtype: str = "float32") -> HFCausalLM:
    """Return a pretrained model for training or evaluation, on the CPU, with its tokenizer.

    Raises:
        CheckpointError: The model or its tokenizer cannot be loaded.
        ConfigError: The model's logits are not hidden states times a matrix.
    """
    return HFCausalLM(*load_hf_model_and_tokenizer(model, dtype))


def load_hf_model_and_tokenizer(
    model: PretrainedModel, dtype: str, **options: Any
) -> tuple[Any, Any]:
    """Return a transformers model and its tokenizer.

    Args:
        model: The model's name on the hub with its revision, or its folder.
        dtype: Type of the weights; "auto" takes it from the model's config.
        **options: More options for `from_pretrained`.

    Raises:
        CheckpointError: The model or its tokenizer cannot be loaded.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name, location = source(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **location)
        inner = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=dtype,
            use_safetensors=True if model.safetensors else None,
            weights_only=True,  # pickle files may hold code: load only tensors
            **location,
            **options,
        )
    except Exception as error:  # transformers, the hub and the network fail in many ways
        raise unreadable(model, error) from None
    return inner, tokenizer


def require_sizes(causal: HFCausalLM, planned: ModelConfig, name: str) -> None:
    """Check that a pretrained model has the sizes that its run was planned with.

    Raises:
        ConfigError: A size differs; the message names the first.
    """
    actual = sizes_of(causal.inner.config, name)
    for key in ("vocab_size", "d_model", "num_layers", "ffn_dim"):
        size, planned_size = getattr(actual, key), getattr(planned, key)
        if size != planned_size:
            raise ConfigError(
                f"{name}: has {key} {size}, its run was planned with {planned_size}: correct its "
                "`sizes`"
            )
