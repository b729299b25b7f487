"""Interface of language models, and a wrapper of transformers models."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Cache


class LanguageModel(nn.Module, ABC):
    """Interface of a causal language model.

    Shapes: B = sequences, T = positions, D = d_model, V = vocabulary.

    Attributes:
        tokenizer: A transformers tokenizer saved with the model; None: the dataset's is used.
    """

    tokenizer: Any = None

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """Matrix [V, D] that maps hidden states to logits."""

    @property
    @abstractmethod
    def embedding_weight(self) -> Tensor:
        """Matrix [V, D] of the token embeddings; the same as `output_weight` if tied."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Size of the vocabulary, V."""

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """Length of the longest sequence that the model accepts, in tokens."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Number of decoder layers."""

    @abstractmethod
    def hidden_states(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """Return the hidden states after the final norm, [B, T, D], of token ids [B, T].

        The T positions follow those in the cache, and are appended to it.
        """


class HFCausalLM(LanguageModel):
    """A wrapper that makes a causal language model of transformers a `LanguageModel`.

    Attributes:
        inner: The wrapped model; fine-tuning methods change its modules in place.
    """

    def __init__(self, inner: Any, tokenizer: Any = None) -> None:
        """Wrap a model.

        Raises:
            ConfigError: Its logits are not just hidden states times a matrix.
        """
        super().__init__()
        settings = inner.config.get_text_config()
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(settings, name, None) not in (None, 1, 1.0):
                raise ConfigError(
                    f"{type(inner).__name__} has {name} {getattr(settings, name)}, which "
                    "training does not support: choose a model without it"
                )
        self.inner, self.tokenizer = inner, tokenizer

    @property
    def output_weight(self) -> Tensor:
        """Matrix [V, D] that maps hidden states to logits."""
        weight: Tensor = self.inner.get_output_embeddings().weight
        return weight

    @property
    def embedding_weight(self) -> Tensor:
        """Matrix [V, D] of the token embeddings."""
        weight: Tensor = self.inner.get_input_embeddings().weight
        return weight

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary, V."""
        return int(self.inner.config.get_text_config().vocab_size)

    @property
    def max_positions(self) -> int:
        """Length of the longest sequence that the model accepts, in tokens."""
        return int(self.inner.config.get_text_config().max_position_embeddings)

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return int(self.inner.config.get_text_config().num_hidden_layers)

    def set_activation_checkpointing(self, enabled: bool) -> None:
        """Enable or disable activation checkpointing of every layer."""
        if enabled:
            self.inner.activation_checkpointing_enable({"use_reentrant": False})
        else:
            self.inner.activation_checkpointing_disable()

    def enable_double_backward(self) -> None:
        """Set float32 weights and eager attention, so that second derivatives can be computed."""
        self.inner.float()
        if self.inner.config._attn_implementation != "eager":
            self.inner.set_attn_implementation("eager")

    def linear_weight_names(self) -> list[str]:
        """Return the names of the layers' matrices, without embeddings and output matrix."""
        return [
            f"{name}.weight"
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and module is not self.inner.get_output_embeddings()
        ]

    def hidden_states(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """Return the hidden states after the final norm, [B, T, D], of token ids [B, T]."""
        options: dict[str, Any] = {} if cache is None else {"past_key_values": cache}
        output = self.inner.base_model(input_ids=tokens, use_cache=cache is not None, **options)
        hidden: Tensor = output.last_hidden_state
        return hidden
