"""What training and its evaluations need of a model: hidden states, and the matrix after them."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from difftransformer.errors import ConfigError
from difftransformer.models.attention.base import Cache


class LanguageModel(nn.Module, ABC):
    """A causal language model.

    Shapes: B = sequences, T = positions, D = d_model, V = vocabulary.

    Attributes:
        tokenizer: Of transformers, saved beside the model; None: that of its data is.
    """

    tokenizer: Any = None

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """[V, D] matrix that maps hidden states to logits."""

    @property
    @abstractmethod
    def embedding_weight(self) -> Tensor:
        """[V, D] matrix of the tokens; the same as `output_weight` where they are tied."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """V, the tokens the model can read and choose from."""

    @property
    @abstractmethod
    def max_positions(self) -> int:
        """Longest context of the model."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Number of decoder blocks."""

    @abstractmethod
    def hidden_states(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """Hidden states after the final norm, [B, T] -> [B, T, D].

        The T positions follow those that the cache holds, and are appended to it.
        """


class HFCausalLM(LanguageModel):
    """A decoder of transformers, over the same parameters.

    Attributes:
        inner: The model, of its own class; methods of adaptation change its modules in place.
    """

    def __init__(self, inner: Any, tokenizer: Any = None) -> None:
        """Wrap a model.

        Raises:
            ConfigError: Its logits are more than hidden states times a matrix.
        """
        super().__init__()
        settings = inner.config.get_text_config()
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(settings, name, None) not in (None, 1, 1.0):
                raise ConfigError(
                    f"{type(inner).__name__} has {name} {getattr(settings, name)}, which "
                    "training here does not apply: take a model without it"
                )
        self.inner, self.tokenizer = inner, tokenizer

    @property
    def output_weight(self) -> Tensor:
        """[V, D] matrix that maps hidden states to logits."""
        weight: Tensor = self.inner.get_output_embeddings().weight
        return weight

    @property
    def embedding_weight(self) -> Tensor:
        """[V, D] matrix of the tokens."""
        weight: Tensor = self.inner.get_input_embeddings().weight
        return weight

    @property
    def vocab_size(self) -> int:
        """V, the tokens the model can read and choose from."""
        return int(self.inner.config.get_text_config().vocab_size)

    @property
    def max_positions(self) -> int:
        """Longest context of the model."""
        return int(self.inner.config.get_text_config().max_position_embeddings)

    @property
    def num_layers(self) -> int:
        """Number of decoder blocks."""
        return int(self.inner.config.get_text_config().num_hidden_layers)

    def set_activation_checkpointing(self, again: bool) -> None:
        """Let training keep a layer's input alone and compute the layer again, or all of it."""
        if again:
            self.inner.activation_checkpointing_enable({"use_reentrant": False})
        else:
            self.inner.activation_checkpointing_disable()

    def enable_double_backward(self) -> None:
        """Make second derivatives possible: float32, and attention that is written out."""
        self.inner.float()
        if self.inner.config._attn_implementation != "eager":
            self.inner.set_attn_implementation("eager")

    def linear_weight_names(self) -> list[str]:
        """Names of the matrices of the layers: all but embeddings, output, norms and biases."""
        return [
            f"{name}.weight"
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and module is not self.inner.get_output_embeddings()
        ]

    def hidden_states(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """Hidden states after the final norm, [B, T] -> [B, T, D]; see `LanguageModel`."""
        held: dict[str, Any] = {} if cache is None else {"past_key_values": cache}
        found = self.inner.base_model(input_ids=tokens, use_cache=cache is not None, **held)
        hidden: Tensor = found.last_hidden_state
        return hidden
