"""Which evaluation job this is: what its result depends on. Light: torch is not needed."""

from pathlib import Path
from typing import Any, NamedTuple

from difftransformer.config.evaluation import EvaluationSlice, measured_suite
from difftransformer.config.suites.hallucination import Hallucination
from difftransformer.config.suites.in_context_learning import InContextLearning
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.config.suites.mathematics import Mathematics
from difftransformer.data.packed import PackedDataset, file_sha256
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.benchmarks import benchmark_digest
from difftransformer.evaluation.classification_items import labelled_files
from difftransformer.evaluation.hallucination_items import items_digest
from difftransformer.evaluation.pretrained_folder import model_digest
from difftransformer.provenance.fingerprint import job_fingerprint, slice_fingerprint
from difftransformer.provenance.result import job_id
from difftransformer.training.upstream import require_same_tokenizer, require_trained

STAGE = "evaluate"


class EvaluationIdentity(NamedTuple):
    """An evaluation job and the training job behind its model, if it was trained here."""

    fingerprint: str
    job_id: str
    upstream: tuple[str, ...]


def identify(
    slice: EvaluationSlice,
    *,
    model: Path | None,
    dataset: PackedDataset | None,
    ngrams: Path | None,
    seed: int,
    code: str,
) -> EvaluationIdentity:
    """Derive the identity from the settings, the code and the content of all inputs.

    Args:
        slice: The resolved suite, and the run it is for.
        model: Folder of a finished training; None for a model from elsewhere, as `dataset`.
        dataset: The packed dataset it was trained on.
        ngrams: Keys of the n-grams frequent in training, for the suites that ask for them.
        seed: Seed of the training.
        code: Fingerprint of the code that evaluates.

    Raises:
        CheckpointError: ``model`` is no folder of a finished training of this run and seed, or it
            was trained with another tokenizer than the dataset's; or a model from elsewhere lacks
            something.
        DataError: The n-grams or the items of a benchmark are missing.
    """
    if slice.pretrained is not None:
        return _identity(slice, {"model": model_digest(slice.pretrained)}, (), seed, code)
    if model is None or dataset is None:
        raise ConfigError(
            f"run {slice.run} is trained here: give the training.json of its --model and the "
            "manifest.json of its --dataset"
        )
    trained = require_trained(model, slice.run, seed)
    require_same_tokenizer(model, dataset, "evaluate it on the dataset it was trained on")
    if ngrams is not None and not ngrams.is_file():
        raise DataError(f"{ngrams}: no such file of frequent n-grams; make it with `count_ngrams`")
    inputs = {
        "dataset": dataset.digest,
        "model": trained.provenance.fingerprint,
        "ngrams": None if ngrams is None else file_sha256(ngrams),
    }
    return _identity(slice, inputs, (trained.job_id,), seed, code)


def _identity(
    slice: EvaluationSlice, inputs: dict[str, Any], upstream: tuple[str, ...], seed: int, code: str
) -> EvaluationIdentity:
    asked = measured_suite(slice.config)
    if isinstance(asked, LanguageUnderstanding | Mathematics):
        inputs["benchmarks"] = benchmark_digest(asked)
    if isinstance(asked, InContextLearning):
        inputs["items"] = [file_sha256(path) for path in labelled_files(asked)]
    if isinstance(asked, Hallucination):
        inputs["benchmarks"] = items_digest(asked)
    digest = slice_fingerprint(inputs)
    fingerprint = job_fingerprint(STAGE, slice, code, digest, seed)
    subject = f"{slice.run}-{slice.suite}"
    return EvaluationIdentity(fingerprint, job_id(STAGE, subject, seed, fingerprint), upstream)
