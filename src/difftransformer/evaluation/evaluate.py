"""One suite on one trained model: load, measure, write the result."""

import logging
import math
import shutil
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from difftransformer.config.evaluation import Suite
from difftransformer.config.evaluations import EvaluationSlice, module_of
from difftransformer.config.run import PretrainedModel
from difftransformer.convert.checkpoint import finetuned_model, load_model, read_config
from difftransformer.convert.pretrained import load_hf_causal_lm
from difftransformer.data.packed import PackedDataset
from difftransformer.data.tokenizer import require_same_tokenizer_as_model
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.evaluation.context import EvalContext, Metrics, PretrainedContext
from difftransformer.evaluation.memory import (
    estimate_evaluation,
    require_memory_for_files,
    require_memory_to_evaluate,
)
from difftransformer.evaluation.metric_validation import as_eval_result, validate_item_sums
from difftransformer.evaluation.scorer import Scorer
from difftransformer.machine.gpus import choose_device
from difftransformer.models.device import set_deterministic
from difftransformer.models.kernels import choose_backend
from difftransformer.models.linear import matmul_backend
from difftransformer.provenance.atomic import make_lasting_folder
from difftransformer.provenance.checksums import weights_digest
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.model_files import model_files
from difftransformer.tracking.run_context import Job

logger = logging.getLogger(__name__)

_SAID = 4
"""Numbers that the log has of a result."""


def evaluate(
    slice: EvaluationSlice,
    *,
    model: Path | None,
    dataset: PackedDataset | None,
    ngrams: Path | None,
    output: Path,
    details: Path,
    state: Path,
    job: Job,
) -> None:
    """Measure one suite and write its result file, whole or not at all.

    The rows and windows that are asked depend on the suite and the dataset alone, so all runs and
    seeds answer the same questions.

    Args:
        slice: See `identify`, as for the model, its dataset and the n-grams.
        model: Holds model.safetensors, config.json and training.json; None where ``slice`` names a
            model from elsewhere.
        dataset: The packed dataset it was trained on.
        ngrams: Keys of the n-grams frequent in training.
        output: JSON file of the result, see `difftransformer.provenance.result`.
        details: Folder for samples and arrays behind the numbers; replaced when all is measured.
        state: Folder that outlives a killed job, for suites that resume.
        job: The running job, of `identify`; its threads decide the order of sums, hence the bits.

    Raises:
        UserError: One line: which file, setting or device does not fit, and what to do.
    """
    seed = job.identity.seed
    assert seed is not None, slice.run
    torch.set_num_threads(job.identity.threads)
    device = choose_device(slice.config.device, "the suite's device")
    set_deterministic(device.type == "cpu")
    aside = details.with_name(f".{details.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    make_lasting_folder(aside)
    context: EvalContext | PretrainedContext
    if model is not None:  # what was kept of other weights under the same name is not asked for
        state = state / weights_digest(model / TRAINING)[:16]
    foreign = slice.pretrained
    if foreign is None and model is not None and slice.config.measures_pretrained:
        foreign = finetuned_model(model)
    if foreign is not None and not slice.config.asked.reads_text:
        context = PretrainedContext(foreign, device, details=aside, state=state)
        resolved: dict[str, Any] = {"device": str(device)}
    else:
        if dataset is None:
            raise ConfigError(
                f"suite {slice.suite} reads text, and {slice.run} is a model from elsewhere: give "
                "the manifest.json of a --dataset in its token ids"
            )
        if foreign is None:
            assert model is not None, slice.run
            scorer, resolved = _load(model, dataset, slice.config, device)
        else:
            scorer, resolved = _load_foreign(foreign, dataset, slice.config, device)
        rows = dataset.manifest.recall or dataset.manifest.classification
        if reason := slice.config.asked.incompatibility(scorer.model.max_positions, rows):
            raise ConfigError(f"suite {slice.suite} on {slice.run} and {dataset.folder}: {reason}")
        context = EvalContext(
            scorer, dataset, device, ngrams, details=aside, state=state, seed=seed, model=model
        )
    job.tracker.log_params({"resolved": resolved})
    # The evaluation is found by its name, so that a suite's imports are its own.
    measure = import_module(module_of(slice.config.kind, "measure")).measure
    found = as_eval_result(measure(slice.config, context), slice.config.kind)
    metrics, per_item = found
    _require_finite(metrics, context, slice.run if model is None else str(model))
    validate_item_sums(found, slice.config.kind)
    shutil.rmtree(details, ignore_errors=True)
    aside.rename(details)
    settings = slice.model_dump(mode="json")
    settings |= {"resolved": resolved, "upstream": list(job.identity.upstream)}
    beside = [path for path in details.rglob("*") if path.is_file() and path.name[0] != "."]
    job.write_result(output, "evaluation", metrics, settings, beside, per_item=per_item)
    logger.info("%s of %s seed %d: %s", slice.suite, slice.run, seed, _headline(metrics, per_item))


def _load(
    model: Path, dataset: PackedDataset, suite: Suite, device: torch.device
) -> tuple[Scorer, dict[str, Any]]:
    """Load the model where the suite wants it; beside it, what `auto` came to."""
    config, manifest = read_config(model), dataset.manifest
    if manifest.vocab_size > config.vocab_size:
        raise ConfigError(
            f"{dataset.folder} has token ids up to {manifest.vocab_size - 1}, the model in {model} "
            f"knows {config.vocab_size}: evaluate it on the dataset it was trained on"
        )
    backend = choose_backend(suite.backend, device, suite.precision)
    needed = estimate_evaluation(suite, config, backend, device, manifest.row_length)
    require_memory_to_evaluate(needed, device, f"{model}: measuring {suite.kind}")
    loaded = load_model(model, backend).to(device)
    resolved: dict[str, Any] = {"device": str(device), "backend": backend}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    return Scorer(loaded, device, suite.precision), resolved


def _load_foreign(
    model: PretrainedModel, dataset: PackedDataset, suite: Suite, device: torch.device
) -> tuple[Scorer, dict[str, Any]]:
    """Load a model of transformers to be asked about text in its own token ids."""
    require_memory_for_files(model_files(model), device, model.name)
    loaded = load_hf_causal_lm(model, model.dtype)
    require_same_tokenizer_as_model(loaded.tokenizer, dataset, model.name)
    attention = loaded.inner.config._attn_implementation
    scorer = Scorer(loaded.to(device).eval(), device, suite.precision)
    return scorer, {"device": str(device), "backend": attention}


def _require_finite(metrics: Metrics, context: EvalContext | PretrainedContext, model: str) -> None:
    odd = next((n for n, v in metrics.items() if v is not None and not math.isfinite(v)), None)
    if odd is None:
        return
    undefined = "or measure should return None for what is undefined"
    if isinstance(context, PretrainedContext):  # its weights were seen by the suite alone
        why = f": either the model computes such numbers (see its `dtype`), {undefined}"
    elif all(bool(one.isfinite().all()) for one in context.scorer.model.parameters()):
        why = ", with weights that are finite: either the model computes such numbers (train it "
        why += f"again), {undefined}"
    else:
        why = ": the model's weights are damaged or diverged; train it again"
    raise CheckpointError(f"{model}: {odd} is {metrics[odd]}{why}")


def _headline(metrics: Metrics, means: Collection[str]) -> str:
    """Name the first numbers: means over what was asked, where there are any."""
    known = {name: value for name, value in metrics.items() if value is not None}
    chosen = [name for name in known if name in means] or list(known)
    return ", ".join(f"{name} {known[name]:.4g}" for name in chosen[:_SAID])
