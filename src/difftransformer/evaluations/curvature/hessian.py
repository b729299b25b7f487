"""Hessian-vector products of a model's loss, by differentiating twice.

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
    """Hessian of the mean cross-entropy over windows with respect to all parameters.

    Args:
        model: A model with eager attention, on any device; its weights must not change.
        windows: Token ids of B windows of T positions, int64 [B, T + 1].
        batch_size: Windows differentiated at a time. With a single batch the graph of the gradient
            is stored; with several, each product computes all graphs again.

    Attributes:
        size: n, the number of parameters.

    Raises:
        CheckpointError: The code of a pretrained model cannot be differentiated twice.
    """

    def __init__(self, model: LanguageModel, windows: Tensor, batch_size: int) -> None:
        self._model, self._windows = model, len(windows)
        self._parameters = [*model.parameters()]
        self.size = sum(parameter.numel() for parameter in self._parameters)
        self._batches = torch.split(windows.to(model.output_weight.device), batch_size)
        self._gradient_graph = None
        if len(self._batches) == 1:
            self._gradient_graph = self._gradient(self._batches[0])

    def __call__(self, vector: Tensor) -> Tensor:
        """Return the Hessian's product with a vector, [n] -> [n], float64 on the model's device."""
        if self._gradient_graph is not None:
            return self._product(self._gradient_graph, vector, retain_graph=True)
        total = torch.zeros_like(vector)
        for batch in self._batches:
            total += self._product(self._gradient(batch), vector, retain_graph=False)
        return total

    def _gradient(self, batch: Tensor) -> tuple[Tensor, ...]:
        """Return a batch's part of the gradient of the mean, with its graph."""
        with disable_custom_backward(), torch.enable_grad():
            logits = linear(self._model.hidden_states(batch[:, :-1]), self._model.output_weight)
            mean = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss = mean * (len(batch) / self._windows)
            with _report_unsupported(self._model):
                return torch.autograd.grad(
                    loss, self._parameters, create_graph=True, materialize_grads=True
                )

    def _product(
        self, gradient: tuple[Tensor, ...], vector: Tensor, *, retain_graph: bool
    ) -> Tensor:
        sizes = [parameter.numel() for parameter in self._parameters]
        directions = [
            part.view_as(parameter).to(parameter.dtype)
            for part, parameter in zip(torch.split(vector, sizes), self._parameters, strict=True)
        ]
        with _report_unsupported(self._model):
            products = torch.autograd.grad(
                gradient,
                self._parameters,
                directions,
                retain_graph=retain_graph,
                materialize_grads=True,
            )
        return torch.cat([product.flatten().double() for product in products])


@contextmanager
def _report_unsupported(model: LanguageModel) -> Iterator[None]:
    """Raise a one-line error if a pretrained model has no second derivative."""
    try:
        yield
    except (NotImplementedError, RuntimeError) as error:
        if not isinstance(model, HFCausalLM) or isinstance(error, torch.OutOfMemoryError):
            raise
        raise CheckpointError(
            f"{type(model.inner).__name__}: its loss cannot be differentiated twice "
            f"({in_one_line(error)}): use a model whose attention has an eager implementation"
        ) from error
