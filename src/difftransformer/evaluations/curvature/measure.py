"""Curvature of the loss (Dex, section 2.4 and figure 7): spectra of its Hessian, by batch.

The batches of all phases are measured one by one, and each finished one is kept, so a killed job
goes on with the next. All models and phases see the same windows.

Shapes: B = windows of a batch, T = seq_len, n = parameters.
"""

import logging
from pathlib import Path
from time import monotonic

import numpy as np
import torch
from torch import Tensor

from difftransformer.config.training import TrainingConfig
from difftransformer.convert.checkpoint import WEIGHTS, load_weights
from difftransformer.data.loader import SplitWindows
from difftransformer.errors import CheckpointError, ConfigError, DataError
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluations.curvature.hessian import LossHessian
from difftransformer.evaluations.curvature.lanczos import Product, lanczos
from difftransformer.evaluations.curvature.settings import (
    FINAL,
    SPECTRA,
    TOP,
    ZERO,
    Spectra,
    Spectrum,
    Suite,
    phase_metric,
)
from difftransformer.models.language_model import HFCausalLM, LanguageModel
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.result import PerItemScores, read_result
from difftransformer.training.state_folder import intermediate_checkpoint

logger = logging.getLogger(__name__)
_SEED = 0
"""Seed of the random vectors; each batch draws its own."""


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Ends of the spectrum and what of it is negative, for each phase: means over batches.

    Two are ratios of sums over batches instead: ``ratio`` and ``negative_curvature``.

    The details of ``context`` get the spectra behind them.

    Returns:
        largest and smallest eigenvalue; ratio, of the smallest's size to the largest (0 where none
        is negative); negative_top, share of negative ones among the ``TOP`` of largest magnitude;
        negative_curvature, the part of the spectrum's summed magnitudes that is negative;
        negative_mass, share of eigenvalues below -``ZERO`` times the largest magnitude; error, the
        largest bound of the error of one of the ``TOP``, in units of the largest of its batch.
        All but the last are known by batch. Those of a phase of ``suite.phases`` end in its name.

    Raises:
        CheckpointError: training did not keep the weights of a phase, or some are damaged.
        DataError: the validation split is missing, or has too few windows.
    """
    batches = validation_batches(suite, context)
    weights = _weights_of_phases(suite, context)
    model = context.scorer.model
    if isinstance(model, HFCausalLM):
        model.enable_double_backward()
    context.state.mkdir(parents=True, exist_ok=True)
    spectra = Spectra(
        phases={
            phase: _measured_phase(suite, context, model, phase, weights[phase], batches)
            for phase in suite.all_phases
        }
    )
    write_text(context.details / SPECTRA, spectra.model_dump_json() + "\n")
    metrics: Metrics = {}
    per_item: dict[str, PerItemScores] = {}
    for phase, found in spectra.phases.items():
        numbers, by_batch = summary(found)
        metrics |= {phase_metric(name, phase): value for name, value in numbers.items()}
        per_item |= {phase_metric(name, phase): one for name, one in by_batch.items()}
    return EvalResult(metrics, per_item)


def validation_batches(suite: Suite, context: EvalContext) -> list[Tensor]:
    """Windows spread evenly over the validation split, int64 [B, T + 1] for each batch.

    Raises:
        DataError: the split is missing, or has too few windows.
    """
    windows = SplitWindows(context.dataset, "validation", suite.seq_len)
    wanted = suite.batches * suite.sequences
    if len(windows) < wanted:
        raise DataError(
            f"{context.dataset.folder}: split validation has {len(windows)} windows of "
            f"{suite.seq_len} tokens, {suite.batches} batches of {suite.sequences} need {wanted}: "
            "lower curvature.batches, sequences or seq_len, or use more text"
        )
    places = np.arange(wanted) * len(windows) // wanted
    return [windows.gather(places[first :: suite.batches]) for first in range(suite.batches)]


def spectrum_of(
    suite: Suite, product: Product, size: int, batch: int, device: torch.device
) -> Spectrum:
    """Measure one matrix, known by its products with vectors [n] on a device.

    Args:
        suite: How.
        product: The matrix.
        size: n.
        batch: Number of the batch, which has random vectors of its own.
        device: Where the vectors are.
    """
    drawn = np.random.default_rng([_SEED, batch])

    def vector() -> Tensor:
        return torch.from_numpy(drawn.standard_normal(size)).to(device)

    found = [lanczos(product, vector(), suite.steps) for _ in range(suite.probes)]
    top, error = min((one.top(TOP) for one in found), key=lambda one: one[1])
    return Spectrum(
        nodes=[one.nodes for one in found],
        weights=[one.weights for one in found],
        top=top,
        error=error,
    )


def summary(found: list[Spectrum]) -> tuple[Metrics, dict[str, PerItemScores]]:
    """Metrics of a phase from its batches, see `measure`, and those that are means, by batch."""
    rows = [_numbers(one) for one in found]
    column = {name: [row[name] for row in rows] for name in rows[0]}
    per_item = {
        "largest": per_item_scores("batches", column["largest"]),
        "smallest": per_item_scores("batches", column["smallest"]),
        "ratio": per_item_scores(
            "batches", (max(0.0, -one) for one in column["smallest"]), column["largest"]
        ),
        "negative_top": per_item_scores("batches", column["negative_top"]),
        "negative_curvature": per_item_scores("batches", column["negative"], column["magnitude"]),
        "negative_mass": per_item_scores("batches", column["negative_mass"]),
    }
    metrics: Metrics = {name: _mean(one) for name, one in per_item.items()}
    return metrics | {"error": max(column["error"])}, per_item


def _mean(scores: PerItemScores) -> float:
    (term,) = scores.terms
    weights = term.weights or [1.0] * len(term.values)
    return sum(term.values) / sum(weights)


def _numbers(one: Spectrum) -> dict[str, float]:
    nodes, weights = np.concatenate(one.nodes), np.concatenate(one.weights) / len(one.weights)
    size = float(np.abs(nodes).max())
    curvature = weights * nodes
    return {
        "largest": float(nodes.max()),
        "smallest": float(nodes.min()),
        "negative_top": sum(value < 0 for value in one.top) / len(one.top),
        "negative": float(-curvature[nodes < 0].sum()),
        "magnitude": float(np.abs(curvature).sum()),
        "negative_mass": float(weights[nodes < -ZERO * size].sum()),
        "error": one.error / size,
    }


def _weights_of_phases(suite: Suite, context: EvalContext) -> dict[str, Path | None]:
    """File of the weights of each phase; None where the model has them already."""
    folder = context.model
    if isinstance(context.scorer.model, HFCausalLM):
        if suite.phases:
            raise ConfigError(
                "curvature.phases: a model from elsewhere has its final weights alone: leave the "
                "phases out"
            )
        return {FINAL: None}
    assert folder is not None, "this suite needs the folder of the model"
    files: dict[str, Path | None] = {FINAL: folder / WEIGHTS}
    if not suite.phases:
        return files
    training = TrainingConfig.model_validate(read_result(folder / TRAINING).settings["training"])
    return files | {
        phase: intermediate_checkpoint(folder, round(share * training.total_steps))
        for phase, share in suite.phases.items()
    }


def _measured_phase(
    suite: Suite, context: EvalContext, model: LanguageModel, phase: str, weights: Path | None,
    batches: list[Tensor],
) -> list[Spectrum]:  # fmt: skip
    """Measure what is not measured yet."""
    files = [context.state / f"{phase}-{number}.json" for number in range(len(batches))]
    if isinstance(model, Transformer) and not all(path.is_file() for path in files):
        assert weights is not None
        load_weights(model, weights)
    for number, path in enumerate(files):
        if path.is_file():
            continue
        started = monotonic()
        hessian = LossHessian(model, batches[number], suite.batch_size)

        def product(vector: Tensor, hessian: LossHessian = hessian) -> Tensor:
            image = hessian(vector)
            if not image.isfinite().all():
                raise CheckpointError(
                    f"{weights or 'the model'}: its loss has no finite curvature, the weights are "
                    "damaged or diverged; train the model again"
                )
            return image

        one = spectrum_of(suite, product, hessian.size, number, context.device)
        write_text(path, one.model_dump_json())
        ends = min(map(min, one.nodes)), max(map(max, one.nodes))
        logger.info(
            "%s, batch %d of %d: eigenvalues from %.4g to %.4g in %.1f s",
            phase, number + 1, len(batches), *ends, monotonic() - started,
        )  # fmt: skip
    return [Spectrum.model_validate_json(path.read_text(encoding="utf-8")) for path in files]
