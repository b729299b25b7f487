"""What is asked about the curvature of the loss."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.evaluation import AnyModel, Reading, SplitSuite
from difftransformer.models.config import ModelConfig

FINAL = "late"
"""Phase of the final weights."""
TOP = 5
"""Eigenvalues of largest magnitude that are looked at, as in the procedure that Dex follows (arXiv
2202.06709), there by power iteration, which takes four times the products and is less exact where
magnitudes are close."""
ZERO = 0.05
"""Eigenvalues nearer to zero than this share of the largest magnitude count as zero in the mass
below zero: most are, and so few steps do not tell their signs."""
SPECTRA = "spectra.json"
"""File beside a result, a `Spectra`."""

_WIDTH, _INNER, _LOGIT, _WEIGHT = 200.0, 65.0, 27.0, 85.0
"""Bytes that differentiating twice holds, an allocator's gaps left out, measured on the CPU with
heads of two maps: of each position for a dimension of d_model and of ffn_dim in a layer and for a
token id, and of each weight of a head's map."""


def phase_metric(name: str, phase: str) -> str:
    """Metric of a phase; those of the final weights have no ending."""
    return name if phase == FINAL else f"{name}_{phase}"


class Spectrum(Settings):
    """What was found of the Hessian of one batch."""

    nodes: list[list[float]] = Field(description="Estimates of eigenvalues, ascending, by probe")
    weights: list[list[float]] = Field(description="Share of the spectrum at each of them")
    top: list[float] = Field(description="Eigenvalues of largest magnitude, that first")
    error: float = Field(description="Largest bound of their errors")


class Spectra(Settings):
    """Those of all batches, in their order, by phase."""

    phases: dict[str, list[Spectrum]]


class Suite(AnyModel, SplitSuite):
    """Eigenvalues of the Hessian of the mean cross-entropy, batch by batch of held-out windows.

    Both ends, the density and the few of largest magnitude by Lanczos.
    """

    kind: Literal["curvature"] = setting(meaning="Which evaluation the suite is.")
    sequences: int = setting(
        16,
        meaning="Windows of a batch, over which the loss is a mean: each batch has a Hessian.",
        unit="windows",
        source="the procedure that Dex follows, arXiv 2202.06709; its batch is not stated, ours",
        gt=0,
    )
    batches: int = setting(
        4, meaning="Batches; their windows are spread evenly over the split.", unit="batches", gt=0
    )
    steps: int = setting(
        20,
        meaning="Lanczos steps from a random vector; each is one product with the Hessian.",
        unit="steps",
        ge=TOP,
    )
    probes: int = setting(
        1, meaning="Random vectors of a batch, over which its density is a mean.", gt=0
    )
    phases: dict[
        Annotated[str, StringConstraints(pattern="^[a-z]+$")], Annotated[float, Field(gt=0, lt=1)]
    ] = setting(
        {},
        meaning="Weights that training kept on its way, by name: shares of `save_checkpoints_at`, "
        "such as {early: 0.1}. The final ones are always measured.",
    )
    batch_size: int = setting(
        16,
        meaning="Windows differentiated at one time; fewer than `sequences` need less memory, and "
        "twice the time.",
        unit="windows",
        gt=0,
    )
    backend: Literal["eager"] = setting(
        "eager", meaning="Only the slow implementation can be differentiated twice."
    )
    precision: Literal["fp32"] = setting(
        "fp32", meaning="Half precision has too few digits; vectors are float64."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if FINAL in self.phases:
            raise ValueError(f"phases: '{FINAL}' is that of the final weights, name it otherwise")
        return self

    @property
    def reads_kept(self) -> bool:
        """Whether it is asked of them, too."""
        return bool(self.phases)

    @property
    def all_phases(self) -> list[str]:
        """Names in the order of training, the final one last."""
        return [*sorted(self.phases, key=lambda name: self.phases[name]), FINAL]

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Windows with both gradients, and the vectors of Lanczos, in float64."""
        held = min(self.batch_size, self.sequences)
        length = min(self.seq_len, model.max_positions)
        heads = model.attention.output_heads
        layers, width, inner, ids = model.num_layers, model.d_model, model.ffn_dim, model.vocab_size
        position = layers * (_WIDTH * width + _INNER * inner) + _LOGIT * ids
        graph = length * position + layers * _WEIGHT * heads * length**2
        parameters = 2 * ids * width + layers * width * (4 * width + 3 * inner)
        vectors = (8.0 * (self.steps + 4) + 16.0) * parameters
        return Reading(
            held, length, length, 0, self.lower("seq_len", "steps"),
            map_bytes=(graph + vectors / held) / (heads * length**2),
        )  # fmt: skip
