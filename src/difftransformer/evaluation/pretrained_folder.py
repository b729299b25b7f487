"""Folders of models from elsewhere: what must lie in one. Light: planning reads it."""

import hashlib
from pathlib import Path

from difftransformer.config.pretrained import PretrainedModel
from difftransformer.errors import CheckpointError

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_PICKLES = ("*.bin",)


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
    weights = ("*.safetensors",) if model.safetensors else ("*.safetensors", *_PICKLES)
    found = {path for pattern in weights for path in folder.glob(pattern)}
    if not found:
        pickled = any(path for pattern in _PICKLES for path in folder.glob(pattern))
        hint = "; it has pickled weights: set `safetensors: false` to take them" if pickled else ""
        raise CheckpointError(f"{folder}: has no weights ({', '.join(weights)}){hint}")
    beside = {
        path for ending in ("json", "model", "txt", "py") for path in folder.glob(f"*.{ending}")
    }
    return sorted(found | beside)


def model_digest(model: PretrainedModel) -> str:
    """Identify a model by the content of its folder, or by its name and revision on the hub."""
    digest = hashlib.sha256()
    files = model_files(model)
    if not files:
        digest.update(f"{model.name}@{model.revision or 'main'}".encode())
    for path in files:
        digest.update(f"{path.name}\0".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
