"""A model as a folder: model.safetensors and a config.json that transformers' Auto classes read."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from difftransformer.config.model import ModelConfig
from difftransformer.errors import CheckpointError
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.atomic import write_bytes, write_text

WEIGHTS, CONFIG = "model.safetensors", "config.json"
MODEL_TYPE = "difftransformer"
ARCHITECTURE = "DiffTransformerForCausalLM"


def save_model(folder: Path, model: Transformer, config: ModelConfig) -> None:
    """Write weights and config into ``folder``, each atomically, the config last."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named_weights(model)}
    write_bytes(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    content = {
        "model_type": MODEL_TYPE,
        "architectures": [ARCHITECTURE],
        "dtype": "float32",
        "model": config.model_dump(mode="json"),
    }
    write_text(folder / CONFIG, json.dumps(content, indent=2) + "\n")


def named_weights(model: Transformer) -> list[tuple[str, Tensor]]:
    """Return the model's tensors by name, a tied matrix once."""
    return list(model.state_dict().items())


def read_config(folder: Path) -> ModelConfig:
    """Return the model config of a saved folder.

    Raises:
        CheckpointError: If config.json is missing or damaged, or of another kind of model.
    """
    path = folder / CONFIG
    try:
        content: Any = json.loads(path.read_text())
        return ModelConfig.model_validate(content["model"])
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; {folder} is not a trained model") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise CheckpointError(f"{path}: not valid JSON; export or train the model again") from None
    except (KeyError, TypeError, ValidationError):
        raise CheckpointError(
            f"{path}: not a difftransformer config (no usable `model` settings); name a folder "
            "made by difftransformer"
        ) from None


def load_model(folder: Path, backend: str = "sdpa") -> Transformer:
    """Return the model saved in ``folder``, on the CPU, in evaluation mode.

    Raises:
        CheckpointError: If a file is missing or damaged, or tensors do not fit the config.
    """
    model = Transformer(read_config(folder), backend)
    load_weights(model, folder / WEIGHTS)
    return model.eval()


def load_weights(model: Transformer, path: Path) -> None:
    """Copy the tensors of a safetensors file into a model of exactly these tensors."""
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; train the model again") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: damaged ({error}); train the model again") from None
    wanted = dict(named_weights(model))
    for name in sorted(wanted.keys() ^ tensors.keys()):
        what = "is missing" if name in wanted else "is not part of this model"
        raise CheckpointError(f"{path}: tensor {name} {what}; its config.json is of another model")
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise CheckpointError(
                f"{path}: tensor {name} has shape {list(tensor.shape)}, its config.json asks for "
                f"{list(wanted[name].shape)}"
            )
        wanted[name].data.copy_(tensor)
