"""What training and its measurements need of a model: hidden states, and the matrix after them."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from difftransformer.errors import ConfigError


class LanguageModel(nn.Module, ABC):
    """A causal language model.

    Shapes: B = sequences, T = positions, D = d_model, V = vocabulary.
    """

    @property
    @abstractmethod
    def output_weight(self) -> Tensor:
        """[V, D] matrix that maps hidden states to logits."""

    @abstractmethod
    def hidden_states(self, tokens: Tensor) -> Tensor:
        """Hidden states after the final norm, [B, T] -> [B, T, D]."""


class CausalModel(LanguageModel):
    """A decoder of transformers, over the same parameters.

    Attributes:
        inner: The model, of its own class; methods of adaptation change its modules in place.
    """

    def __init__(self, inner: Any) -> None:
        """Wrap a model.

        Raises:
            ConfigError: Its logits are more than hidden states times a matrix.
        """
        super().__init__()
        settings = inner.config.get_text_config()
        for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
            if getattr(settings, name, None) not in (None, 1, 1.0):
                raise ConfigError(
                    f"{type(inner).__name__} has {name} {getattr(settings, name)}, which training "
                    "here does not apply: take a model without it"
                )
        self.inner = inner

    @property
    def output_weight(self) -> Tensor:
        """[V, D] matrix that maps hidden states to logits."""
        weight: Tensor = self.inner.get_output_embeddings().weight
        return weight

    def layer_matrices(self) -> list[str]:
        """Names of the matrices of the layers: all but embeddings, output, norms and biases."""
        return [
            f"{name}.weight"
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and module is not self.inner.get_output_embeddings()
        ]

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """Hidden states after the final norm, [B, T] -> [B, T, D]."""
        hidden: Tensor = self.inner.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return hidden
