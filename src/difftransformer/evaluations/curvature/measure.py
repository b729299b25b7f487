"""Curvature of the loss: spectra of its Hessian per batch (Dex, section 2.4 and figure 7).

Each spectrum (of a batch in a phase of training) is saved when it is computed, so a killed job
resumes with the next one. All models and phases use the same windows.

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
from difftransformer.evaluations.curvature.lanczos import MatVec, lanczos
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
_SEED = 0  # of the random start vectors, together with the number of the batch


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return metrics of the Hessian's spectrum in each phase of training, as means over batches.

    Metrics ``ratio`` and ``negative_curvature`` are ratios of sums over batches. Spectra are saved
    in the details of ``context``.

    Returns:
        largest, smallest: eigenvalues; ratio: magnitude of the smallest over the largest (0 if none
        is negative); negative_top: fraction of negative ones among the ``TOP`` (5) eigenvalues of
        largest magnitude; negative_curvature: share of negative eigenvalues in the sum of all
        magnitudes; negative_mass: fraction of eigenvalues below -``ZERO`` (0.05) times the largest
        magnitude; error: largest error bound of the ``TOP`` eigenvalues, relative to the largest
        eigenvalue of the batch. All but error have per-item scores by batch. Metrics of a phase of
        ``suite.phases`` have its name as suffix.

    Raises:
        CheckpointError: The weights of a phase were not saved in training, or are damaged.
        DataError: The validation split is missing, or has too few windows.
    """
    batches = validation_batches(suite, context)
    weights = _weights_of_phases(suite, context)
    model = context.scorer.model
    if isinstance(model, HFCausalLM):
        model.enable_double_backward()
    context.state.mkdir(parents=True, exist_ok=True)
    spectra = Spectra(
        phases={
            phase: _phase_spectra(suite, context, model, phase, weights[phase], batches)
            for phase in suite.all_phases
        }
    )
    write_text(context.details / SPECTRA, spectra.model_dump_json() + "\n")
    metrics: Metrics = {}
    per_item: dict[str, PerItemScores] = {}
    for phase, batch_spectra in spectra.phases.items():
        values, by_batch = summary(batch_spectra)
        metrics |= {phase_metric(name, phase): value for name, value in values.items()}
        per_item |= {phase_metric(name, phase): scores for name, scores in by_batch.items()}
    return EvalResult(metrics, per_item)


def validation_batches(suite: Suite, context: EvalContext) -> list[Tensor]:
    """Return batches of windows spread evenly over the validation split, each int64 [B, T + 1].

    Raises:
        DataError: The validation split is missing, or has too few windows.
    """
    windows = SplitWindows(context.dataset, "validation", suite.seq_len)
    needed = suite.batches * suite.sequences
    if len(windows) < needed:
        raise DataError(
            f"{context.dataset.folder}: split validation has {len(windows)} windows of "
            f"{suite.seq_len} tokens, {suite.batches} batches of {suite.sequences} need {needed}: "
            "lower curvature.batches, sequences or seq_len, or use more text"
        )
    indices = np.arange(needed) * len(windows) // needed
    return [windows.gather(indices[first :: suite.batches]) for first in range(suite.batches)]


def spectrum_of(
    suite: Suite, matvec: MatVec, size: int, batch: int, device: torch.device
) -> Spectrum:
    """Return the estimated spectrum of a symmetric matrix, given by its products with vectors.

    Args:
        suite: Settings with the number of Lanczos steps.
        matvec: Product of the matrix with a vector on ``device``.
        size: n, the size of the matrix.
        batch: Number of the batch, part of the random start vector's seed.
        device: Device of the vectors.
    """
    start = np.random.default_rng([_SEED, batch]).standard_normal(size)
    ritz = lanczos(matvec, torch.from_numpy(start).to(device), suite.steps)
    top, error = ritz.top(TOP)
    return Spectrum(nodes=ritz.nodes, weights=ritz.weights, top=top, error=error)


def summary(spectra: list[Spectrum]) -> tuple[Metrics, dict[str, PerItemScores]]:
    """Return a phase's metrics from the spectra of its batches, and their per-batch scores."""
    rows = [_batch_values(spectrum) for spectrum in spectra]
    column = {name: [row[name] for row in rows] for name in rows[0]}
    per_item = {
        "largest": per_item_scores("batches", column["largest"]),
        "smallest": per_item_scores("batches", column["smallest"]),
        "ratio": per_item_scores(
            "batches", (max(0.0, -value) for value in column["smallest"]), column["largest"]
        ),
        "negative_top": per_item_scores("batches", column["negative_top"]),
        "negative_curvature": per_item_scores("batches", column["negative"], column["magnitude"]),
        "negative_mass": per_item_scores("batches", column["negative_mass"]),
    }
    metrics: Metrics = {name: _mean(scores) for name, scores in per_item.items()}
    return metrics | {"error": max(column["error"])}, per_item


def _mean(scores: PerItemScores) -> float:
    (term,) = scores.terms
    weights = term.weights or [1.0] * len(term.values)
    return sum(term.values) / sum(weights)


def _batch_values(spectrum: Spectrum) -> dict[str, float]:
    nodes, weights = np.array(spectrum.nodes), np.array(spectrum.weights)
    size = float(np.abs(nodes).max())
    curvature = weights * nodes
    return {
        "largest": float(nodes.max()),
        "smallest": float(nodes.min()),
        "negative_top": sum(value < 0 for value in spectrum.top) / len(spectrum.top),
        "negative": float(-curvature[nodes < 0].sum()),
        "magnitude": float(np.abs(curvature).sum()),
        "negative_mass": float(weights[nodes < -ZERO * size].sum()),
        "error": spectrum.error / size,
    }


def _weights_of_phases(suite: Suite, context: EvalContext) -> dict[str, Path | None]:
    """Return the file of each phase's weights; None for weights that are loaded already."""
    folder = context.model
    if isinstance(context.scorer.model, HFCausalLM):
        if suite.phases:
            raise ConfigError(
                "curvature.phases: a pretrained model has only its final weights: remove the phases"
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


def _phase_spectra(
    suite: Suite, context: EvalContext, model: LanguageModel, phase: str, weights: Path | None,
    batches: list[Tensor],
) -> list[Spectrum]:  # fmt: skip
    """Return the spectra of a phase's batches; those saved by an earlier job are read."""
    files = [context.state / f"{phase}-{number}.json" for number in range(len(batches))]
    if isinstance(model, Transformer) and not all(path.is_file() for path in files):
        assert weights is not None
        load_weights(model, weights)
    for number, path in enumerate(files):
        if path.is_file():
            continue
        started = monotonic()
        hessian = LossHessian(model, batches[number], suite.batch_size)

        def matvec(vector: Tensor, hessian: LossHessian = hessian) -> Tensor:
            product = hessian(vector)
            if not product.isfinite().all():
                raise CheckpointError(
                    f"{weights or 'the model'}: its loss has no finite curvature, the weights are "
                    "damaged or diverged: train the model again"
                )
            return product

        spectrum = spectrum_of(suite, matvec, hessian.size, number, context.device)
        write_text(path, spectrum.model_dump_json())
        ends = spectrum.nodes[0], spectrum.nodes[-1]
        logger.info(
            "%s, batch %d of %d: eigenvalues from %.4g to %.4g in %.1f s",
            phase, number + 1, len(batches), *ends, monotonic() - started,
        )  # fmt: skip
    return [Spectrum.model_validate_json(path.read_text(encoding="utf-8")) for path in files]
