"""Which evaluation job this is: what its result depends on. Light: torch is not needed."""

from pathlib import Path
from typing import NamedTuple

from difftransformer.config.evaluation import EvaluationSlice
from difftransformer.data.packed import PackedDataset, file_sha256
from difftransformer.errors import DataError
from difftransformer.provenance.fingerprint import job_fingerprint, slice_fingerprint
from difftransformer.provenance.result import job_id
from difftransformer.training.upstream import require_same_tokenizer, require_trained

STAGE = "evaluate"


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
    trained = require_trained(model, slice.run, seed)
    require_same_tokenizer(model, dataset, "evaluate it on the dataset it was trained on")
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
