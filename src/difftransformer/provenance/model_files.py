"""The files of a pretrained model and the digest that identifies the model, without torch."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from difftransformer.config.pretrained import weight_files
from difftransformer.config.run import PretrainedModel
from difftransformer.errors import CheckpointError
from difftransformer.provenance.fingerprint import named_digest

_SENTENCEPIECE = "tokenizer.model"
_TOKENIZERS = ("tokenizer.json", _SENTENCEPIECE, "vocab.json")
_WEIGHTS, _PICKLED = "model.safetensors", "pytorch_model.bin"


def model_files(model: PretrainedModel) -> list[Path]:
    """Return the files of a pretrained model in its local folder, sorted; empty for a hub model.

    Raises:
        CheckpointError: The folder does not exist, or it has no config, tokenizer or weights that
            transformers would load.
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
    if (folder / _SENTENCEPIECE).is_file() and not (folder / "tokenizer.json").is_file():
        _require_sentencepiece(folder / _SENTENCEPIECE)
    names = [_WEIGHTS] if model.safetensors else [_WEIGHTS, _PICKLED]
    weights = next(filter(None, (weight_files(folder / name) for name in names)), [])
    if not weights:
        pickled = weight_files(folder / _PICKLED)
        hint = "; it has pickled weights: set `safetensors: false` to take them" if pickled else ""
        raise CheckpointError(f"{folder}: has no weights ({', '.join(names)}){hint}")
    code = "**/*.py" if model.trust_remote_code else "*.py"
    return sorted({*weights}.union(*map(folder.glob, ("*.json", "*.model", "*.txt", code))))


def model_digest(model: PretrainedModel) -> str:
    """Return a digest of a pretrained model.

    A local model is identified by the content of its files, a hub model by its name and revision.
    """
    if model.folder is not None:
        folder = model.folder
        files = model_files(model)
        return named_digest((path.relative_to(folder).as_posix(), path) for path in files)
    return hashlib.sha256(f"{model.name}@{model.revision or 'main'}".encode()).hexdigest()


def _require_sentencepiece(path: Path) -> None:
    """Check that transformers can read a tokenizer.model, unless it is text: that is tiktoken's."""
    with path.open("rb") as file:
        binary = file.read(1) == b"\n"  # protobuf tag of the first piece
    if binary and find_spec("sentencepiece") is None:
        raise CheckpointError(
            f"{path}: needs the package sentencepiece, since there is no tokenizer.json: `pip "
            "install sentencepiece`, or save the tokenizer as tokenizer.json where it is installed"
        )
