"""The files of a model from elsewhere, and what identifies it. Light: torch is not needed."""

import hashlib
from pathlib import Path

from difftransformer.config.run import PretrainedModel
from difftransformer.errors import CheckpointError
from difftransformer.provenance.fingerprint import named_digest

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_PICKLES = "*.bin"


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
