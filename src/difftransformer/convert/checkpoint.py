"""Save and load models: model.safetensors, and a config.json for transformers' Auto classes.

It does not import transformers: training jobs write the folder, evaluations load it.
"""

import errno
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from difftransformer.config.pretrained import model_type, weight_files
from difftransformer.config.run import PretrainedModel
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.models.config import MODEL_TYPE, ModelConfig
from difftransformer.models.language_model import HFCausalLM, LanguageModel
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_bytes, write_text
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import TRAINING

WEIGHTS, CONFIG, TOKENIZER = "model.safetensors", "config.json", "tokenizer.json"
ADAPTER = "adapter.safetensors"
"""Name of the adapter file next to a fine-tuned model; its metadata has the settings."""
_MISMATCH = "it does not belong to the config.json beside it"
ARCHITECTURE = "DiffTransformerForCausalLM"
STUB_MODULE = "modeling_difftransformer"
STUB = f'''"""Lets `trust_remote_code` find this model's classes in the package difftransformer.

The package must be installed where this folder is loaded (`pip install '.[eval]'` in a checkout of
it). To load the model without it, export the folder to the format llama or diffllama instead.
"""

from difftransformer import DiffTransformerConfig, {ARCHITECTURE}

__all__ = ["DiffTransformerConfig", "{ARCHITECTURE}"]
'''
AUTO_MAP = {
    "AutoConfig": f"{STUB_MODULE}.DiffTransformerConfig",
    "AutoModelForCausalLM": f"{STUB_MODULE}.{ARCHITECTURE}",
}


def save_model(
    folder: Path, model: Transformer, config: ModelConfig, *, eos_token_id: int | None = None
) -> None:
    """Write one of our models into ``folder``, each file atomically, config.json last.

    Args:
        folder: Folder to write to; created if missing.
        model: The model, on any device.
        config: Settings for config.json, usually ``model.config``.
        eos_token_id: Id of the end-of-sequence token, for transformers.
    """
    save_weights(folder / WEIGHTS, model.state_dict())
    write_text(folder / f"{STUB_MODULE}.py", STUB)
    content: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "auto_map": AUTO_MAP,
        "dtype": str(model.output_weight.dtype).removeprefix("torch."),
        "model": asdict(config),
        "model_type": MODEL_TYPE,
    }
    if eos_token_id is not None:
        content["eos_token_id"] = eos_token_id
    write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")


def save_language_model(folder: Path, model: LanguageModel) -> None:
    """Write a model of our or a transformers class into ``folder``, each file atomically.

    config.json is written last. A transformers model is saved with its tokenizer (except
    tokenizer.json) and generation settings, and its weights in a single file.
    """
    if isinstance(model, Transformer):
        save_model(folder, model, model.config)
        return
    assert isinstance(model, HFCausalLM)
    with TemporaryDirectory(dir=folder, prefix=".") as aside:
        try:
            model.inner.save_pretrained(aside, max_shard_size=sys.maxsize)
        except SafetensorError as error:  # the error of a full disk
            raise OSError(errno.EIO, str(error)) from error
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(aside)
        files = [path for path in Path(aside).iterdir() if path.name != TOKENIZER]
        for path in sorted(files, key=lambda path: path.name == CONFIG):
            path.replace(folder / path.name)


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write named tensors to a safetensors file atomically, creating missing folders."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    write_bytes(path, save(tensors, metadata={"format": "pt"}))


def read_config(folder: Path) -> ModelConfig:
    """Return the model settings from the config.json of a saved model's folder.

    Raises:
        DataError: config.json differs from its recorded checksum.
        CheckpointError: config.json is missing, damaged, or of another model type.
    """
    path = folder / CONFIG
    verify_checksum(path)
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        settings = content["model"]
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: no such file; {folder} has no trained model, train it first"
        ) from None
    except (OSError, ValueError):
        raise CheckpointError(f"{path}: not readable as JSON; train the model again") from None
    except (KeyError, TypeError):
        if (kind := model_type(folder)) not in (None, MODEL_TYPE):
            raise CheckpointError(
                f"{path}: is a {kind}: a pretrained model keeps its format, fine-tuned or not; "
                "load the folder with transformers"
            ) from None
        raise CheckpointError(
            f"{path}: no settings under `model`; pass a folder written by difftransformer"
        ) from None
    try:
        return ModelConfig.from_dict(settings, f"{path}: model")
    except ConfigError as error:
        raise CheckpointError(f"{error}; train the model again") from None


def finetuned_model(folder: Path) -> PretrainedModel | None:
    """Return a reference to the fine-tuned transformers model in a folder, or None.

    None means that the folder has one of our models, or an unreadable one, for which `load_model`
    raises an error.

    Raises:
        DataError: A file differs from its recorded checksum.
    """
    if model_type(folder) in (None, MODEL_TYPE):
        return None
    for name in (CONFIG, WEIGHTS, TOKENIZER):
        verify_checksum(folder / name)
    return PretrainedModel(name=str(folder.resolve()))


def load_model(folder: Path, backend: str = "sdpa") -> Transformer:
    """Return the model saved in ``folder``, on the CPU in float32, in evaluation mode.

    Raises:
        CheckpointError: A file is missing or damaged, or its tensors do not fit the settings.
        DataError: A file differs from its recorded checksum.
        ConfigError: The stored settings name an unknown attention variant.
    """
    model = Transformer(read_config(folder), backend)
    load_weights(model, folder / WEIGHTS)
    return model.eval()


@torch.no_grad()
def load_weights(
    model: Transformer,
    path: Path,
    local_shard: Callable[[Tensor, Tensor], Tensor] = lambda tensor, _target: tensor,
) -> None:
    """Copy the tensors of a safetensors file into a model; their names must match exactly.

    Args:
        model: The model, on any device.
        path: The file. If it is missing, a transformers index beside it names the shards.
        local_shard: Maps (tensor, target) to the part of the tensor that a sharded target holds.

    Raises:
        CheckpointError: The file is missing or damaged, or names the first tensor that is missing,
            unknown, or of another shape.
        DataError: The file differs from its recorded checksum.
    """
    verify_checksum(path)
    targets = model.state_dict()
    try:
        with ExitStack() as opened:
            files = weight_files(path) or [path]
            shards = [opened.enter_context(safe_open(file, framework="pt")) for file in files]
            shard_of = {name: shard for shard in shards for name in shard.keys()}  # noqa: SIM118
            for name in sorted(targets.keys() ^ shard_of.keys()):
                problem = "is missing" if name in targets else "is unknown to the model"
                raise CheckpointError(f"{path}: tensor {name} {problem}; {_MISMATCH}")
            for name, target in targets.items():
                tensor = shard_of[name].get_tensor(name)
                if tensor.shape != target.shape:
                    raise CheckpointError(
                        f"{path}: tensor {name} has shape {list(tensor.shape)}, not "
                        f"{list(target.shape)}; {_MISMATCH}"
                    )
                if not tensor.is_floating_point():
                    dtype = str(tensor.dtype).removeprefix("torch.")
                    raise CheckpointError(
                        f"{path}: tensor {name} is {dtype}, no float; {_MISMATCH}"
                    )
                target.copy_(local_shard(tensor, target))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; train the model again") from None
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: truncated or damaged ({reason}); train the model again"
        ) from None


def verify_checksum(path: Path) -> None:
    """Compare a file of a finished training with its recorded checksum, if it has one.

    Raises:
        DataError: The checksums differ; the message names the command that makes the file again.
    """
    for folder in path.parents[:2]:
        if path.is_file() and (folder / TRAINING).is_file():
            verify_file(path, folder / TRAINING)
            return
