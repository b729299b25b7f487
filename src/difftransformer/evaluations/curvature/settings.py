"""Settings, metric names and files of the evaluation of curvature."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.evaluation import AnyModel, Reading, SplitSuite
from difftransformer.models.config import ModelConfig

FINAL = "late"
"""Name of the phase with the final weights."""
TOP = 5
"""Number of eigenvalues of largest magnitude, as in the procedure that Dex follows (arXiv
2202.06709). That procedure uses power iteration, which needs four times the products and is less
exact for close magnitudes."""
ZERO = 0.05
"""Eigenvalues of smaller magnitude, relative to the largest, count as zero in ``negative_mass``:
most are, and few Lanczos steps do not resolve their signs."""
SPECTRA = "spectra.json"
"""File in the details of a result, with a `Spectra`."""

_WIDTH, _INNER, _LOGIT, _WEIGHT = 200.0, 65.0, 27.0, 85.0
"""Bytes that differentiating twice needs, measured on the CPU with heads of two maps: per position
and dimension of d_model, and of ffn_dim, in a layer; per position and token id; per weight of a
head's map."""


def phase_metric(name: str, phase: str) -> str:
    """Return the name of a metric in a phase; for the final weights it has no suffix."""
    return name if phase == FINAL else f"{name}_{phase}"


class Spectrum(Settings):
    """Estimated spectrum of the Hessian of one batch."""

    nodes: list[float] = Field(description="Estimates of eigenvalues, ascending")
    weights: list[float] = Field(description="Fraction of the spectrum at each estimate")
    top: list[float] = Field(description="Eigenvalues of largest magnitude, descending")
    error: float = Field(description="Largest error bound of `top`")


class Spectra(Settings):
    """Estimated spectra of all batches, in order, by phase of training."""

    phases: dict[str, list[Spectrum]]


class Suite(AnyModel, SplitSuite):
    """Suite of eigenvalues of the Hessian of the mean cross-entropy, per batch of held-out windows.

    Lanczos iteration gives both ends of the spectrum, its density and the eigenvalues of largest
    magnitude.
    """

    kind: Literal["curvature"] = setting(meaning="Which evaluation the suite is.")
    sequences: int = setting(
        16,
        meaning="Windows of a batch; each batch has a Hessian, of the mean loss over its windows.",
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
    phases: dict[
        Annotated[str, StringConstraints(pattern="^[a-z]+$")], Annotated[float, Field(gt=0, lt=1)]
    ] = setting(
        {},
        meaning="Intermediate checkpoints to measure, by name: fractions of training among "
        "those of `save_checkpoints_at`, such as {early: 0.1}. Final weights are always measured.",
    )
    batch_size: int = setting(
        16,
        meaning="Windows differentiated at a time; fewer than `sequences` take less memory and "
        "twice the time.",
        unit="windows",
        gt=0,
    )
    backend: Literal["eager"] = setting(
        "eager", meaning="Only eager attention can be differentiated twice."
    )
    precision: Literal["fp32"] = setting(
        "fp32", meaning="Half precision is too inaccurate; vectors are float64."
    )

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
        if FINAL in self.phases:
            raise ValueError(f"phases: '{FINAL}' names the final weights, choose another name")
        return self

    @property
    def reads_intermediate(self) -> bool:
        """Whether the suite reads intermediate checkpoints of training."""
        return bool(self.phases)

    @property
    def all_phases(self) -> list[str]:
        """Names of all phases in the order of training, the final weights last."""
        return [*sorted(self.phases, key=lambda name: self.phases[name]), FINAL]

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: graphs and Lanczos vectors."""
        windows = min(self.batch_size, self.sequences)
        length = min(self.seq_len, model.max_positions)
        heads = model.attention.output_heads
        layers, width, inner, ids = model.num_layers, model.d_model, model.ffn_dim, model.vocab_size
        position = layers * (_WIDTH * width + _INNER * inner) + _LOGIT * ids
        graph = length * position + layers * _WEIGHT * heads * length**2
        parameters = 2 * ids * width + layers * width * (4 * width + 3 * inner)
        vectors = (8.0 * (self.steps + 4) + 16.0) * parameters
        return Reading(
            windows, length, length, 0, self.lower("seq_len", "steps"),
            map_bytes=(graph + vectors / windows) / (heads * length**2),
        )  # fmt: skip
