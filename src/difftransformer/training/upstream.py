"""The finished training that a job starts from: its result, tokenizer and share of identities.

Light: torch is not needed.
"""

from pathlib import Path

from difftransformer.data.packed import PackedDataset, file_sha256
from difftransformer.errors import CheckpointError
from difftransformer.provenance.fingerprint import slice_fingerprint
from difftransformer.provenance.result import Result, read_result

TRAINING = "training.json"
TOKENIZER = "tokenizer.json"


def require_trained(model: Path, run: str, seed: int) -> Result:
    """Read the result of the training that made the model; it must be of this run and seed.

    Raises:
        CheckpointError: There is no such folder, its training has not finished, or it is another.
    """
    if not (model / TRAINING).is_file():
        what = "training has not finished" if model.is_dir() else "no such model folder"
        raise CheckpointError(f"{model}: {what}; make it with `pretrain`")
    trained = read_result(model / TRAINING)
    if (trained.run, trained.seed) != (run, seed):
        raise CheckpointError(
            f"{model}: holds run {trained.run} with seed {trained.seed}, asked for {run} "
            f"with seed {seed}"
        )
    return trained


def require_same_tokenizer(model: Path, dataset: PackedDataset, cure: str) -> None:
    """Compare the tokenizer beside the model, copied from its training data, with the dataset's.

    Raises:
        CheckpointError: They differ; ``cure`` says what to do.
    """
    beside = model / TOKENIZER
    found = file_sha256(beside) if beside.is_file() else None
    if found != dataset.manifest.tokenizer.sha256:
        raise CheckpointError(
            f"{model}: was trained with another tokenizer than that of {dataset.folder}: {cure}"
        )


def training_inputs(dataset: PackedDataset, parent: Result | None) -> str:
    """Digest of everything that a training reads: its data and, where there is one, its parent."""
    if parent is None:
        return dataset.digest
    return slice_fingerprint({"dataset": dataset.digest, "parent": parent.provenance.fingerprint})
