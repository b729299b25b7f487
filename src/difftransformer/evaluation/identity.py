"""Which evaluation job this is: what its result depends on. Light: torch is not needed."""

import hashlib
from pathlib import Path
from typing import Any

from difftransformer.config.measurements import EvaluationSlice
from difftransformer.config.run import PretrainedModel
from difftransformer.data.packed import PackedDataset, file_sha256
from difftransformer.errors import CheckpointError, ConfigError, DataError
from difftransformer.evaluation.item_files import named_digest
from difftransformer.provenance.fingerprint import job_fingerprint, slice_fingerprint
from difftransformer.provenance.job import JobIdentity
from difftransformer.training.upstream import require_same_tokenizer, require_trained

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_PICKLES = "*.bin"


def identify(
    slice: EvaluationSlice,
    *,
    model: Path | None,
    dataset: PackedDataset | None,
    ngrams: Path | None,
    seed: int,
    threads: int,
    code: str,
) -> JobIdentity:
    """Derive the identity from the settings, the code and the content of all inputs.

    Upstream of it is the training job behind the model, if that was trained here.

    Args:
        slice: The resolved suite, and the run it is for.
        model: Folder of a finished training; None for a model from elsewhere, as `dataset`.
        dataset: The packed dataset it was trained on.
        ngrams: Keys of the n-grams frequent in training, for the suites that ask for them.
        seed: Seed of the training.
        threads: Threads of one operation; no part of the fingerprint.
        code: Fingerprint of the code that evaluates.

    Raises:
        CheckpointError: ``model`` is no folder of a finished training of this run and seed, or it
            was trained with another tokenizer than the dataset's; or a model from elsewhere lacks
            something.
        DataError: The n-grams or the items of a benchmark are missing.
    """
    inputs: dict[str, Any] = {}
    upstream: tuple[str, ...] = ()
    if slice.pretrained is not None:
        inputs["model"] = model_digest(slice.pretrained)
    elif model is None or dataset is None:
        raise ConfigError(
            f"run {slice.run} is trained here: give the training.json of its --model and the "
            "manifest.json of its --dataset"
        )
    else:
        trained = require_trained(model, slice.run, seed)
        require_same_tokenizer(model, dataset, "evaluate it on the dataset it was trained on")
        inputs |= {"dataset": dataset.digest, "model": trained.provenance.fingerprint}
        inputs["ngrams"] = None if ngrams is None else _digest_of_ngrams(ngrams)
        upstream = (trained.job_id,)
    inputs["items"] = slice.config.asked.digest()
    return JobIdentity(
        rule="evaluate",
        stage="evaluate",
        scale=slice.scale,
        run=slice.run,
        suite=slice.suite,
        seed=seed,
        fingerprint=job_fingerprint("evaluate", slice, code, slice_fingerprint(inputs), seed),
        upstream=upstream,
        threads=threads,
    )


def _digest_of_ngrams(path: Path) -> str:
    if not path.is_file():
        raise DataError(f"{path}: no such file of frequent n-grams; make it with `count_ngrams`")
    return file_sha256(path)


def model_files(model: PretrainedModel) -> list[Path]:
    """Return the files of a model in a folder, sorted; a model on the hub has none here.

    Raises:
        CheckpointError: There is no such folder, or it lacks its config, weights or tokenizer.
    """
    folder = model.folder
    if folder is None:
        return []
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such model folder; name one, or an id of the hub")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder / 'config.json'}: no such file; name a transformers folder")
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise CheckpointError(
            f"{folder}: has no tokenizer ({', '.join(_TOKENIZERS)}); copy the one it was trained "
            "with into it"
        )
    weights = ("*.safetensors",) if model.safetensors else ("*.safetensors", _PICKLES)
    found = {path for pattern in weights for path in folder.glob(pattern)}
    if not found:
        pickled = any(folder.glob(_PICKLES))
        hint = "; it has pickled weights: set `safetensors: false` to take them" if pickled else ""
        raise CheckpointError(f"{folder}: has no weights ({', '.join(weights)}){hint}")
    return sorted(found.union(*(folder.glob(f"*.{one}") for one in ("json", "model", "txt", "py"))))


def model_digest(model: PretrainedModel) -> str:
    """Identify a model by the content of its folder, or by its name and revision on the hub."""
    if files := model_files(model):
        return named_digest((path.name, path) for path in files)
    return hashlib.sha256(f"{model.name}@{model.revision or 'main'}".encode()).hexdigest()
