"""One suite on one trained model: load, measure, write the result."""

import logging
import math
import shutil
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import torch

from difftransformer.config.measurement import Suite
from difftransformer.config.measurements import EvaluationSlice, module_of
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.evaluation.identity import identify
from difftransformer.evaluation.memory import estimate_evaluation, require_memory_to_evaluate
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluation.subject import Metrics, PretrainedSubject, Subject
from difftransformer.models.checkpoint import load_model, read_config
from difftransformer.models.device import choose_device, repeat_bits
from difftransformer.models.kernels import choose_backend
from difftransformer.provenance.result import Result, origin, write_result
from difftransformer.provenance.tracking import Tracker

logger = logging.getLogger(__name__)

_HEADLINE = ("loss", "ar_hit_loss", "accuracy", "answer", "noise")


def evaluate(  # noqa: PLR0913 - a job's whole frame, by keyword
    slice: EvaluationSlice,
    *,
    model: Path | None,
    dataset: Path | None,
    ngrams: Path | None,
    output: Path,
    details: Path,
    state: Path,
    seed: int,
    threads: int,
    tracker: Tracker,
    code: str,
) -> None:
    """Measure one suite and write its result file, whole or not at all.

    The rows and windows that are asked depend on the suite and the dataset alone, so all runs and
    seeds answer the same questions.

    Args:
        slice: The resolved suite, and the run it is for.
        model: Folder of a finished training: model.safetensors, config.json, training.json; None
            for a model from elsewhere, which the slice names.
        dataset: Folder of the packed dataset; None for a model from elsewhere.
        ngrams: Keys of the n-grams frequent in training, for the suites that ask for them.
        output: JSON file of the result, see `difftransformer.provenance.result`.
        details: Folder for samples and arrays behind the numbers; replaced when all is measured.
        state: Folder that outlives a killed job, for suites that resume.
        seed: Seed of the training that made the model.
        threads: Threads of one operation; they decide the order of sums, hence the bits.
        tracker: Receives the metrics and the result file.
        code: Fingerprint of the code that evaluates.

    Raises:
        UserError: One line: which file, setting or device does not fit, and what to do.
    """
    started = datetime.now(UTC)
    opened = None if dataset is None else PackedDataset.open(dataset)
    identity = identify(slice, model=model, dataset=opened, ngrams=ngrams, seed=seed, code=code)
    torch.set_num_threads(threads)
    device = choose_device(slice.config.device, "the suite's device")
    repeat_bits(device.type == "cpu")
    aside = details.with_name(f".{details.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    subject: Subject | PretrainedSubject
    if slice.pretrained is not None:
        subject = PretrainedSubject(slice.pretrained, device, details=aside, state=state)
        resolved = {"device": str(device)}
    else:
        assert model is not None and opened is not None, slice.run
        scorer, resolved = _load(model, opened, slice.config, device)
        subject = Subject(
            scorer, opened, device, ngrams, details=aside, state=state, seed=seed, model=model
        )
    tracker.log_params({"resolved": resolved})
    # The measurement is found by its name, so that a suite's imports are its own.
    measure = import_module(module_of(slice.config.kind, "measure")).measure
    metrics: Metrics = measure(slice.config, subject)
    _require_finite(metrics, slice.run if model is None else str(model))
    shutil.rmtree(details, ignore_errors=True)
    aside.rename(details)
    result = Result(
        kind="evaluation",
        job_id=identity.job_id,
        scale=slice.scale,
        run=slice.run,
        seed=seed,
        suite=slice.suite,
        metrics=metrics,
        settings=slice.model_dump(mode="json")
        | {"resolved": resolved, "upstream": list(identity.upstream)},
        provenance=origin(identity.fingerprint, started=started, threads=threads),
    )
    write_result(output, result, [path for path in details.rglob("*") if path.is_file()])
    tracker.set_tags({"upstream": " ".join(identity.upstream)})
    tracker.log_metrics({name: value for name, value in metrics.items() if value is not None})
    tracker.log_artifact(output)
    logger.info("%s of %s seed %d: %s", slice.suite, slice.run, seed, _headline(metrics))


def _load(
    model: Path, dataset: PackedDataset, suite: Suite, device: torch.device
) -> tuple[Scorer, dict[str, str]]:
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
    return Scorer(loaded, device, suite.precision), {"device": str(device), "backend": backend}


def _require_finite(metrics: Metrics, model: str) -> None:
    for name, value in metrics.items():
        if value is not None and not math.isfinite(value):
            raise CheckpointError(
                f"{model}: {name} is {value}: the model's weights are damaged or diverged; train "
                "it again"
            )


def _headline(metrics: Metrics) -> str:
    return ", ".join(
        f"{name} {value:.4g}"
        for name, value in metrics.items()
        if value is not None and name.partition("_n")[0] in _HEADLINE and "_d" not in name
    )
