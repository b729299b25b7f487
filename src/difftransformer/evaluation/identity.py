"""Which evaluation job this is: what its result depends on. Light: torch is not needed."""

from pathlib import Path
from typing import NamedTuple

from difftransformer.config.evaluation import EvaluationSlice
from difftransformer.data.packed import PackedDataset, file_sha256
from difftransformer.errors import CheckpointError, DataError
from difftransformer.provenance.fingerprint import job_fingerprint, slice_fingerprint
from difftransformer.provenance.result import Result, job_id, read_result

STAGE = "evaluate"
TRAINING = "training.json"
TOKENIZER = "tokenizer.json"


class EvaluationIdentity(NamedTuple):
    """An evaluation job and the training job behind its model."""

    fingerprint: str
    job_id: str
    upstream: str


def identify(
    slice: EvaluationSlice,
    *,
    model: Path,
    dataset: PackedDataset,
    ngrams: Path | None,
    seed: int,
    code: str,
) -> EvaluationIdentity:
    """Derive the identity from the settings, the code and the content of all inputs.

    Raises:
        CheckpointError: ``model`` is no folder of a finished training of this run and seed, or it
            was trained with another tokenizer than the dataset's.
        DataError: The n-grams are missing.
    """
    trained = read_training(model)
    if (trained.run, trained.seed) != (slice.run, seed):
        raise CheckpointError(
            f"{model}: holds run {trained.run} with seed {trained.seed}, asked for {slice.run} "
            f"with seed {seed}"
        )
    _require_same_tokenizer(model, dataset)
    if ngrams is not None and not ngrams.is_file():
        raise DataError(f"{ngrams}: no such file of frequent n-grams; make it with `count_ngrams`")
    inputs = slice_fingerprint(
        {
            "dataset": dataset.digest,
            "model": trained.provenance.fingerprint,
            "ngrams": None if ngrams is None else file_sha256(ngrams),
        }
    )
    fingerprint = job_fingerprint(STAGE, slice, code, inputs, seed)
    subject = f"{slice.run}-{slice.suite}"
    return EvaluationIdentity(
        fingerprint, job_id(STAGE, subject, seed, fingerprint), trained.job_id
    )


def read_training(model: Path) -> Result:
    """Read the result of the training that made the model.

    Raises:
        CheckpointError: There is no such folder, or its training has not finished.
    """
    if not (model / TRAINING).is_file():
        what = "training has not finished" if model.is_dir() else "no such model folder"
        raise CheckpointError(f"{model}: {what}; make it with `pretrain`")
    return read_result(model / TRAINING)


def _require_same_tokenizer(model: Path, dataset: PackedDataset) -> None:
    """Compare the tokenizer beside the model, copied from its training data, with the dataset's."""
    beside = model / TOKENIZER
    found = file_sha256(beside) if beside.is_file() else None
    if found != dataset.manifest.tokenizer.sha256:
        raise CheckpointError(
            f"{model}: was trained with another tokenizer than that of {dataset.folder}: evaluate "
            "it on the dataset it was trained on"
        )
