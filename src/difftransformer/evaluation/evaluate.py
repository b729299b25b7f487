"""Evaluates one suite on one trained model: load, measure, write the result."""

import logging
import math
import shutil
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from difftransformer.config.evaluation import Suite
from difftransformer.config.evaluations import EvaluationConfig, module_of
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

_LOGGED_METRICS = 4


def evaluate(
    eval_config: EvaluationConfig,
    *,
    model: Path | None,
    dataset: PackedDataset | None,
    ngrams: Path | None,
    output: Path,
    details: Path,
    state: Path,
    job: Job,
) -> None:
    """Evaluate one suite on one model, and write the result file atomically.

    Items and windows depend on the suite and the dataset only, so all runs and seeds are evaluated
    on the same ones.

    Args:
        eval_config: The resolved suite, and the run that it evaluates.
        model: Folder with model.safetensors, config.json and training.json; None if
            ``eval_config`` names a pretrained model.
        dataset: Packed dataset that the model was trained on.
        ngrams: File of the n-grams that are frequent in the training data.
        output: JSON file of the result, see `difftransformer.provenance.result`.
        details: Folder for samples and arrays behind the metrics; replaced at the end.
        state: Folder that survives a killed job, for suites that resume.
        job: The running job, with the identity from `identify`. Its number of threads sets the
            order of sums, hence the exact bits of the result.

    Raises:
        UserError: A file, setting or device does not fit; the one-line message says which.
    """
    config = eval_config.config
    seed = job.identity.seed
    assert seed is not None, eval_config.run
    torch.set_num_threads(job.identity.threads)
    device = choose_device(config.device, "the suite's device")
    set_deterministic(device.type == "cpu")
    partial = details.with_name(f".{details.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    make_lasting_folder(partial)
    context: EvalContext | PretrainedContext
    if model is not None:  # results of other weights under the same name are not resumed
        state = state / weights_digest(model / TRAINING)[:16]
    pretrained = eval_config.pretrained
    if pretrained is None and model is not None and config.measures_pretrained:
        pretrained = finetuned_model(model)
    if pretrained is not None and not config.base_suite.reads_text:
        context = PretrainedContext(pretrained, device, details=partial, state=state)
        resolved: dict[str, Any] = {"device": str(device)}
    else:
        if dataset is None:
            raise ConfigError(
                f"suite {eval_config.suite} reads text, and {eval_config.run} is a pretrained "
                "model: give the manifest.json of a --dataset in its token ids"
            )
        if pretrained is None:
            assert model is not None, eval_config.run
            scorer, resolved = _load(model, dataset, config, device)
        else:
            scorer, resolved = _load_pretrained(pretrained, dataset, config, device)
        rows = dataset.manifest.recall or dataset.manifest.classification
        if reason := config.base_suite.incompatibility(scorer.model.max_positions, rows):
            raise ConfigError(
                f"suite {eval_config.suite} on {eval_config.run} and {dataset.folder}: {reason}"
            )
        context = EvalContext(
            scorer, dataset, device, ngrams, details=partial, state=state, seed=seed, model=model
        )
    job.tracker.log_params({"resolved": resolved})
    # Imported by name, so that a job imports only its own evaluation.
    measure = import_module(module_of(config.kind, "measure")).measure
    result = as_eval_result(measure(config, context), config.kind)
    metrics, per_item = result
    _require_finite(metrics, context, eval_config.run if model is None else str(model))
    validate_item_sums(result, config.kind)
    shutil.rmtree(details, ignore_errors=True)
    partial.rename(details)
    settings = eval_config.model_dump(mode="json")
    settings |= {"resolved": resolved, "upstream": list(job.identity.upstream)}
    files = [path for path in details.rglob("*") if path.is_file() and path.name[0] != "."]
    job.write_result(output, "evaluation", metrics, settings, files, per_item=per_item)
    logger.info(
        "%s of %s seed %d: %s",
        *(eval_config.suite, eval_config.run, seed, _summary(metrics, per_item)),
    )


def _load(
    model: Path, dataset: PackedDataset, suite: Suite, device: torch.device
) -> tuple[Scorer, dict[str, Any]]:
    """Load a model for a suite; return it with the resolved device and backends."""
    config, manifest = read_config(model), dataset.manifest
    if manifest.vocab_size > config.vocab_size:
        raise ConfigError(
            f"{dataset.folder} has token ids up to {manifest.vocab_size - 1}, the model in {model} "
            f"has {config.vocab_size}: evaluate it on the dataset it was trained on"
        )
    backend = choose_backend(suite.backend, device, suite.precision)
    needed = estimate_evaluation(suite, config, backend, device, manifest.row_length)
    require_memory_to_evaluate(needed, device, f"{model}: evaluating {suite.kind}")
    loaded = load_model(model, backend).to(device)
    resolved: dict[str, Any] = {"device": str(device), "backend": backend}
    if device.type == "cpu":
        resolved["matmul_backend"] = matmul_backend()
    return Scorer(loaded, device, suite.precision), resolved


def _load_pretrained(
    model: PretrainedModel, dataset: PackedDataset, suite: Suite, device: torch.device
) -> tuple[Scorer, dict[str, Any]]:
    """Load a model of transformers to evaluate on text in its own token ids."""
    require_memory_for_files(model_files(model), device, model.name)
    loaded = load_hf_causal_lm(model, model.dtype)
    require_same_tokenizer_as_model(loaded.tokenizer, dataset, model.name)
    attention = loaded.inner.config._attn_implementation
    scorer = Scorer(loaded.to(device).eval(), device, suite.precision)
    return scorer, {"device": str(device), "backend": attention}


def _require_finite(metrics: Metrics, context: EvalContext | PretrainedContext, model: str) -> None:
    name = next((n for n, v in metrics.items() if v is not None and not math.isfinite(v)), None)
    if name is None:
        return
    undefined = "or measure should return None for what is undefined"
    if isinstance(context, PretrainedContext):  # only the suite has seen its weights
        reason = f": either the model computes such numbers (see its `dtype`), {undefined}"
    elif all(bool(weight.isfinite().all()) for weight in context.scorer.model.parameters()):
        reason = ", with weights that are finite: either the model computes such numbers (train it "
        reason += f"again), {undefined}"
    else:
        reason = ": the model's weights are damaged or diverged; train it again"
    raise CheckpointError(f"{model}: {name} is {metrics[name]}{reason}")


def _summary(metrics: Metrics, means: Collection[str]) -> str:
    """Write the first metrics for the log: means over items, if there are any."""
    defined = {name: value for name, value in metrics.items() if value is not None}
    names = [name for name in defined if name in means] or list(defined)
    return ", ".join(f"{name} {defined[name]:.4g}" for name in names[:_LOGGED_METRICS])
