"""Matrices without initial values: the model draws them all, or a checkpoint brings them.

torch's own initialisation would be thrown away, takes long for large models, advances the global
random state, and on the meta device imports the compiler (seconds).
"""

from torch import Tensor, nn

from difftransformer.models import products


class Linear(nn.Linear):
    """x W', without bias; undefined until `Transformer.init_weights` or a checkpoint sets it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return products.linear(x, self.weight)

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class Embedding(nn.Embedding):
    """One row for each id; undefined until `Transformer.init_weights` or a checkpoint sets it."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""
