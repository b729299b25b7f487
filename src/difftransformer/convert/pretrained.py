"""The pretrained model that is adapted, as it is: nothing of it is converted."""

from typing import Any

from difftransformer.config.pretrained import sizes_of, source, unreadable
from difftransformer.config.run import PretrainedModel
from difftransformer.errors import ConfigError
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM


def load_hf_causal_lm(model: PretrainedModel, dtype: str = "float32") -> HFCausalLM:
    """Return a model ready to be trained or asked, on the CPU, with its tokenizer.

    Raises:
        CheckpointError: As `load_hf_model_and_tokenizer`.
        ConfigError: Its logits are more than hidden states times a matrix.
    """
    return HFCausalLM(*load_hf_model_and_tokenizer(model, dtype))


def load_hf_model_and_tokenizer(
    model: PretrainedModel, dtype: str, **options: Any
) -> tuple[Any, Any]:
    """Return a model of transformers and its tokenizer.

    Args:
        model: Where it is.
        dtype: Of its weights; auto: as its config says.
        **options: Further ones of `from_pretrained` for the model.

    Raises:
        CheckpointError: It or its tokenizer cannot be loaded.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    name, found = source(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, **found)
        inner = AutoModelForCausalLM.from_pretrained(
            name,
            dtype=dtype,
            use_safetensors=True if model.safetensors else None,
            weights_only=True,  # of pickled weights the tensors alone, whatever else they hold
            **found,
            **options,
        )
    except Exception as error:  # transformers, the hub and the network fail in many ways
        raise unreadable(model, error) from None
    return inner, tokenizer


def require_sizes(causal: HFCausalLM, planned: ModelConfig, name: str) -> None:
    """Check that a model has the sizes that its run was planned with.

    Raises:
        ConfigError: It has others; names the first.
    """
    found = sizes_of(causal.inner.config, name)
    for key in ("vocab_size", "d_model", "num_layers", "ffn_dim"):
        ours, theirs = getattr(planned, key), getattr(found, key)
        if ours != theirs:
            raise ConfigError(
                f"{name}: has {key} {theirs}, its run was planned with {ours}: correct its `sizes`"
            )
