"""GaLore and APOLLO: AdamW with its moments in a low-rank projection of each matrix's gradient.

    GaLore  R = G P',  W <- W - lr s adam(R) P                      (Zhao et al. 2024, 2403.03507)
    APOLLO  R = G P',  W <- W - lr sqrt(s) G |adam(R)_c| / |R_c|    (Zhu et al. 2024, 2412.05270)

for a matrix with at least as many rows as columns, transposed otherwise. P holds the first r right
singular vectors of G in GaLore and normal numbers of variance 1/r in APOLLO, renewed every `gap`
steps; c is a channel, a row of R. APOLLO limits how much the norm of an update may grow.

The authors' packages keep P in objects that need pickle; this implementation, whose state is plain
tensors, is tested against them step by step. Shapes: m, n = rows and columns, r = rank.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from difftransformer.config.base import setting
from difftransformer.config.training import TrainingConfig
from difftransformer.models.config import ModelConfig
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.sizes import llama_matrices
from difftransformer.training.method import Method, MethodSettings, ParameterCounts, Task
from difftransformer.training.optimizer import AdamW

GROWTH = 1.01
"""An update's norm may grow by this factor from step to step (APOLLO, after Fira)."""
_TINY = 1e-8


class LowRankMethodSettings(MethodSettings):
    """Settings that GaLore and APOLLO share, with the defaults of transformers."""

    rank: int = setting(128, meaning="r", source="transformers", gt=0)
    gap: int = setting(
        200, meaning="Steps after which the space is made anew", source="transformers", gt=0
    )

    def parameter_counts(self, model: ModelConfig) -> ParameterCounts:
        """Return the numbers of trained parameters and of optimizer states.

        A projected matrix has its projection and two low-rank moments, other parameters have two
        moments.
        """
        trained, shapes = self.trainable_parameters(model), list(llama_matrices(model).values())
        ranks = [_projection_rank(self.method, self.rank, min(shape)) for shape in shapes]
        low = sum(r * (min(s) + 2 * max(s)) for r, s in zip(ranks, shapes, strict=True))
        matrices = sum(rows * columns for rows, columns in shapes)
        other = trained - model.num_layers * matrices
        return ParameterCounts(trained, 2 * other + model.num_layers * low)


def low_rank_method(
    kind: Literal["galore", "apollo"],
    model: HFCausalLM,
    settings: LowRankMethodSettings,
    scale: float,
    task: Task,
) -> Method:
    """Return a `Method` that trains all parameters, the layers' matrices by GaLore or APOLLO."""
    low = LowRankSettings(kind, settings.rank, settings.gap, scale, task.seed)
    matrices = model.linear_weight_names()
    return Method(LowRankAdamW(model.named_parameters(), matrices, task.training, low))


@dataclass(frozen=True)
class LowRankSettings:
    """Settings of the optimizer: method, rank r, steps between new P (gap), scale s, and seed."""

    kind: Literal["galore", "apollo"]
    rank: int
    gap: int
    scale: float
    seed: int


class LowRankAdamW:
    """Optimizer with GaLore or APOLLO for the matrices of the layers, AdamW for other parameters.

    Args:
        parameters: Pairs of name and parameter.
        matrices: Names of the parameters that are projected.
        config: Training settings.
        settings: Settings of GaLore or APOLLO.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, nn.Parameter]],
        matrices: Iterable[str],
        config: TrainingConfig,
        settings: LowRankSettings,
    ) -> None:
        projected, parameters = set(matrices), list(parameters)
        self._adamw = AdamW(((n, p) for n, p in parameters if n not in projected), config)
        self._matrices = [
            _Matrix(name, p, config, settings) for name, p in parameters if name in projected
        ]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Parameters that the optimizer updates."""
        return [*self._adamw.parameters, *(matrix.parameter for matrix in self._matrices)]

    @torch.no_grad()
    def step(self, lr: float, found_inf: Tensor | None = None) -> None:
        """Update the parameters from their gradients, and set the gradients to None."""
        self._adamw.step(lr, found_inf)
        # Reading the value waits for the GPU, which the projections outweigh.
        skipped = found_inf is not None and bool(found_inf)
        for matrix in self._matrices:
            if matrix.parameter.grad is not None and not skipped:
                matrix.step(lr, matrix.parameter.grad)
            matrix.parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimizer state by names ``{key}.{parameter name}``, without copying."""
        low_rank = {
            f"{key}.{matrix.name}": tensor
            for matrix in self._matrices
            for key, tensor in matrix.state.items()
        }
        return self._adamw.tensors() | low_rank

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore the optimizer state from a result of `tensors`."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])


class _Matrix:
    """A matrix, its projection P, and the moments of the projected gradient."""

    def __init__(
        self, name: str, parameter: nn.Parameter, config: TrainingConfig, settings: LowRankSettings
    ) -> None:
        self.name, self.parameter = name, parameter
        self._config, self._settings = config, settings
        self._tall = parameter.shape[0] >= parameter.shape[1]
        long, short = sorted(parameter.shape, reverse=True)
        rank = _projection_rank(settings.kind, settings.rank, short)
        device = parameter.device
        self.state = {
            "projection": torch.zeros(rank, short, device=device),
            "low_exp_avg": torch.zeros(long, rank, device=device),
            "low_exp_avg_sq": torch.zeros(long, rank, device=device),
            "low_norm": torch.zeros((), device=device),
            "low_step": torch.zeros((), dtype=torch.int64),
        }

    def step(self, lr: float, grad: Tensor) -> None:
        """Update the matrix from its gradient."""
        settings, (beta1, beta2) = self._settings, self._config.betas
        done = int(self.state["low_step"])
        tall_grad = grad if self._tall else grad.T  # [long, short]
        projection = self.state["projection"]
        if done % settings.gap == 0:
            projection.copy_(self._projection(grad, done // settings.gap))
        low = tall_grad @ projection.T
        first, second = self.state["low_exp_avg"], self.state["low_exp_avg_sq"]
        first.mul_(beta1).add_(low, alpha=1 - beta1)
        second.mul_(beta2).addcmul_(low, low, value=1 - beta2)
        self.state["low_step"] += 1
        corrected = lr * sqrt(1 - beta2 ** (done + 1)) / (1 - beta1 ** (done + 1))
        adam = first / second.sqrt().add_(self._config.eps)
        if settings.kind == "galore":
            update = (adam @ projection) * settings.scale
        else:
            factor = adam.norm(dim=1, keepdim=True) / (low.norm(dim=1, keepdim=True) + _TINY)
            update = self._limited(tall_grad * factor, done) * sqrt(settings.scale)
        self.parameter.add_(update if self._tall else update.T, alpha=-corrected)
        if self._config.weight_decay > 0:
            self.parameter.mul_(1 - lr * self._config.weight_decay)

    def _projection(self, grad: Tensor, number: int) -> Tensor:
        rank = len(self.state["projection"])
        if self._settings.kind == "galore":
            left, _, right = torch.linalg.svd(grad.float(), full_matrices=False)
            vectors: Tensor = right if self._tall else left.T
            return vectors[:rank]
        return random_projection(grad.shape, rank, self._seed(number)).to(grad.device)

    def _seed(self, number: int) -> int:
        """Return the seed of the matrix's projection ``number``."""
        return zlib.crc32(f"{self._settings.seed}:{self.name}:{number}".encode())

    def _limited(self, update: Tensor, done: int) -> Tensor:
        """Limit the growth of the update's norm, see `GROWTH`."""
        norm, last = update.norm(), self.state["low_norm"]
        if done == 0:
            last.copy_(norm)
            return update
        limiter = (norm / (last + _TINY)).clamp(min=GROWTH) / GROWTH
        last.copy_(norm / limiter)
        limited: Tensor = update / limiter
        return limited


def _projection_rank(kind: str, rank: int, short: int) -> int:
    """Return the rows of P: a matrix has no more singular vectors than its shorter side."""
    return min(rank, short) if kind == "galore" else rank


def random_projection(shape: torch.Size, rank: int, seed: int) -> Tensor:
    """Return APOLLO's random projection P for a matrix of this shape, [rank, shorter side].

    It is drawn in the same way as by APOLLO's authors.
    """
    generator = torch.Generator().manual_seed(seed)
    short = min(shape)
    if shape[0] >= shape[1]:
        return torch.randn(rank, short, generator=generator) / sqrt(rank)
    return torch.randn(short, rank, generator=generator).T / sqrt(rank)
