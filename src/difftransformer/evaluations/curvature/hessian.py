"""Products of vectors with the Hessian of a model's loss, by differentiating twice.

    H v = d (g . v) / d w,  g = d loss / d w      (Pearlmutter 1994, Neural Computation 6(1))

Shapes: B = windows, T = positions, n = parameters.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from difftransformer.errors import CheckpointError, in_one_line
from difftransformer.models.autograd import disable_custom_backward
from difftransformer.models.language_model import HFCausalLM, LanguageModel
from difftransformer.models.linear import linear


class LossHessian:
    """The Hessian of the mean cross-entropy over windows, by all parameters of a model.

    Args:
        model: Of eager attention, on any device; its weights must stay as they are.
        windows: int64 [B, T + 1].
        batch_size: Windows differentiated at one time. Of one such part the graph of the gradient
            is kept; of several each is made again for every product.

    Attributes:
        size: n.

    Raises:
        CheckpointError: Code of a model from elsewhere that cannot be differentiated twice.
    """

    def __init__(self, model: LanguageModel, windows: Tensor, batch_size: int) -> None:
        self._model, self._windows = model, len(windows)
        self._parameters = [*model.parameters()]
        self.size = sum(one.numel() for one in self._parameters)
        self._parts = torch.split(windows.to(model.output_weight.device), batch_size)
        self._kept = self._gradient(self._parts[0]) if len(self._parts) == 1 else None

    def __call__(self, vector: Tensor) -> Tensor:
        """[n] -> [n], float64 on the model's device; computed in the model's precision."""
        if self._kept is not None:
            return self._product(self._kept, vector, keep=True)
        total = torch.zeros_like(vector)
        for part in self._parts:
            total += self._product(self._gradient(part), vector, keep=False)
        return total

    def _gradient(self, part: Tensor) -> tuple[Tensor, ...]:
        """What a part adds to the gradient of the mean, with its graph."""
        with disable_custom_backward(), torch.enable_grad():
            logits = linear(self._model.hidden_states(part[:, :-1]), self._model.output_weight)
            loss = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten())
            share = loss * (len(part) / self._windows)
            with _refused(self._model):
                return torch.autograd.grad(
                    share, self._parameters, create_graph=True, materialize_grads=True
                )

    def _product(self, gradient: tuple[Tensor, ...], vector: Tensor, *, keep: bool) -> Tensor:
        sizes = [one.numel() for one in self._parameters]
        rows = zip(torch.split(vector, sizes), self._parameters, strict=True)
        directions = [row.view_as(one).to(one.dtype) for row, one in rows]
        with _refused(self._model):
            found = torch.autograd.grad(
                gradient, self._parameters, directions, retain_graph=keep, materialize_grads=True
            )
        return torch.cat([one.flatten().double() for one in found])


@contextmanager
def _refused(model: LanguageModel) -> Iterator[None]:
    """Say in one line what of a model from elsewhere has no second derivative."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        if not isinstance(model, HFCausalLM) or isinstance(error, torch.OutOfMemoryError):
            raise
        raise CheckpointError(
            f"{type(model.inner).__name__}: its loss cannot be differentiated twice "
            f"({in_one_line(error)}): take a model whose attention has an eager implementation"
        ) from error
