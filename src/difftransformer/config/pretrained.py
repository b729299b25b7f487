"""Pretrained models: location, files and model config; transformers is imported when needed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from difftransformer.config.base import setting
from difftransformer.config.run import PretrainedModel
from difftransformer.config.validation import validate
from difftransformer.errors import CheckpointError, in_one_line
from difftransformer.models.config import MODEL_TYPE, ModelConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


class PretrainedBase(PretrainedModel):
    """The pretrained model that the setting `pretrained` of config.yaml names."""

    label: str | None = setting(
        None,
        meaning="Its name in tables and figures; null: the last part of its name",
        min_length=1,
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "float32",
        meaning="Type of the weights where it is evaluated as it is; adaptations are float32",
    )
    sizes: dict[str, Any] | None = setting(
        None,
        meaning="Its sizes as `model` of a run has them, so that it can be planned without its "
        "files; null: those of its config.json",
    )

    @property
    def display_name(self) -> str:
        """Name of the model in tables and figures."""
        return self.label or self.name.rstrip("/").rpartition("/")[2] or self.name

    def planned(self, location: str) -> ModelConfig:
        """Return the model config: from the setting `sizes`, or else from the model's config.json.

        Args:
            location: Place of the setting, for error messages.

        Raises:
            ConfigError: The sizes are not valid.
            CheckpointError: The config.json is not usable, as for the function `sizes`.
        """
        if self.sizes is not None:
            return validate(ModelConfig, self.sizes, location)
        return sizes(self)


_OTHER_SIZES = "ignore_mismatched_sizes"
"""Option of transformers that its error message on weights of a wrong shape mentions."""
_NAMING_CODE = ("config.json", "tokenizer_config.json")
"""Files whose key `auto_map` refers to remote code for the model or its tokenizer."""
_SUBTRACTING = {"DiffLlamaForCausalLM", "MotifForCausalLM", "Phi4FlashForCausalLM"}


def named(value: Any) -> Any:
    """Return ``{"name": value}`` for the name of a model, and any other value unchanged."""
    return {"name": value} if isinstance(value, str) else value


def source(model: PretrainedModel) -> tuple[str, dict[str, Any]]:
    """Return name or path and keyword arguments to load a model with `from_pretrained`.

    Raises:
        CheckpointError: Files of the model refer to weights outside its folder or, with
            `trust_remote_code`, to code of another repository; or the hub cannot be read.
    """
    # An absolute path is not a valid hub id, so transformers does not contact the hub.
    name = model.name if model.folder is None else str(model.folder.resolve())
    revision = model.revision or "main"
    for index in sorted(model.folder.glob("*.index.json")) if model.folder else []:
        indexed_weights(index)  # transformers itself accepts any path in a local index
    if model.trust_remote_code:
        _require_own_code(model, name, revision)
    return name, {"revision": revision, "trust_remote_code": model.trust_remote_code}


def indexed_weights(index: Path) -> list[Path]:
    """Return the paths of the files that a weight index lists, sorted; they need not exist.

    Args:
        index: Path of the index, such as model.safetensors.index.json.

    Raises:
        CheckpointError: The index lists no file, or a file outside its folder.
    """
    try:
        names = {Path(file) for file in json.loads(index.read_bytes())["weight_map"].values()}
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"{index}: lists no weight files; copy it again") from None
    for name in sorted(names):
        if name.is_absolute() or ".." in name.parts:
            raise CheckpointError(
                f"{index}: lists {str(name)!r}, which is outside its folder: copy the file "
                "into the folder and list it by its file name"
            )
    return sorted(index.with_name(str(name)) for name in names)


def weight_files(path: Path) -> list[Path]:
    """Return a weight file in a list or, if it does not exist, the shards that its index lists.

    The list is empty if there is no index either.

    Args:
        path: Path of the weight file, such as model.safetensors.

    Raises:
        CheckpointError: The index lists no file, or a file that does not exist or is outside its
            folder.
    """
    if path.is_file():
        return [path]
    index = path.with_name(f"{path.name}.index.json")
    if not index.is_file():
        return []
    files = indexed_weights(index)
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{file}: no such file; {index.name} names it: copy it, too")
    return files


def _require_own_code(model: PretrainedModel, name: str, revision: str) -> None:
    """Check that a model loads no remote code of another repository, which `revision` cannot pin.

    Raises:
        CheckpointError: A file of the model refers to another repository, or cannot be read.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import RemoteEntryNotFoundError

    for file in _NAMING_CODE:
        try:
            if model.folder is None:
                path = Path(hf_hub_download(name, file, revision=revision))
            elif not (path := model.folder / file).is_file():
                continue  # loading the model reports a missing file
            content = json.loads(path.read_bytes())
        except RemoteEntryNotFoundError:
            continue
        except Exception as error:  # the hub and the network fail in many ways
            raise unreadable(model, error) from None
        for reference in _code_references(content):
            repository, separator, _ = reference.rpartition("--")
            if separator and repository != name:
                raise CheckpointError(
                    f"{model.name}: its {file} loads code from another repository, {reference}, "
                    "whose commit is not pinned: copy the model into a folder with that code, name "
                    "it there without `--` in auto_map, and set `pretrained` to the folder"
                )


def _code_references(content: Any) -> Iterator[str]:
    """Yield every reference to code in an `auto_map`, such as ``owner/repo--module.Class``."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _strings(value) if key == "auto_map" else _code_references(value)
    elif isinstance(content, list):
        for value in content:
            yield from _code_references(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def unreadable(model: PretrainedModel, error: Exception) -> CheckpointError:
    """Return the one-line error, with advice, for a pretrained model that cannot be loaded."""
    local = model.folder is not None
    location = "" if local else " from the Hugging Face hub"
    cure = (
        "is it a causal language model with its tokenizer?"
        if local
        else "check its id, its revision and the network, or name a folder"
    )
    if _OTHER_SIZES in str(error):
        cure = "its weights have other sizes than its config.json says"
    if model.folder is not None and (model.folder / "adapter_config.json").is_file():
        cure = "it is an adapter alone: name the model that it changes, or the two merged"
    return CheckpointError(
        f"{model.name}: cannot be loaded{location} ({in_one_line(error)}); {cure}"
    )


def sizes(model: PretrainedModel) -> ModelConfig:
    """Return the model config of a pretrained model, from its config.json only.

    Raises:
        CheckpointError: The config cannot be read, or adaptation does not support the model: an
            encoder, not a causal language model, differential already, or quantized.
    """
    from transformers import AutoConfig

    name, options = source(model)
    if model.folder is not None and not model.folder.is_dir():
        raise CheckpointError(
            f"{model.folder}: no such model folder; name one, or an id of the hub"
        )
    if model.folder is not None and model_type(model.folder) == MODEL_TYPE:
        raise CheckpointError(
            f"{model.name}: is a model of this package: a run continues it by `init_from`"
        )
    try:
        config = AutoConfig.from_pretrained(name, **options)
    except Exception as error:  # transformers, the hub and the network fail in many ways
        raise unreadable(model, error) from None
    return sizes_of(config, model.name)


def model_type(folder: Path) -> str | None:
    """Return the value of `model_type` in a folder's config.json, or None if it cannot be read."""
    try:
        kind: str | None = json.loads((folder / "config.json").read_text("utf-8"))["model_type"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the code that loads the model reports the error
    return kind


def sizes_of(config: "PreTrainedConfig", name: str) -> ModelConfig:
    """Return a transformers config as a model config of this package.

    Args:
        config: The transformers config.
        name: Name of the model, for error messages.

    Raises:
        CheckpointError: Adaptation does not support the model, as for `sizes`.
        ConfigError: The sizes are not valid.
    """
    text: Any = config.get_text_config(decoder=True)
    if config.is_encoder_decoder or getattr(config, "architectures", None) in (None, []):
        problem = "has an encoder" if config.is_encoder_decoder else "names no architecture"
        raise CheckpointError(f"{name}: {problem}: name a causal language model")
    if not any(architecture.endswith("ForCausalLM") for architecture in config.architectures or []):
        names = ", ".join(config.architectures or [])
        raise CheckpointError(f"{name}: is a {names}: name a model ...ForCausalLM")
    if subtracting := _SUBTRACTING.intersection(config.architectures or []):
        raise CheckpointError(
            f"{name}: is a {subtracting.pop()}, whose heads subtract maps already: name a model "
            "that was trained without"
        )
    if getattr(config, "quantization_config", None) is not None:
        raise CheckpointError(
            f"{name}: its weights are quantized, and cannot train: take the model it was made from"
        )
    rope = getattr(text, "rope_parameters", None) or {}
    try:
        heads = text.num_attention_heads
        settings = {
            "vocab_size": text.vocab_size,
            "d_model": text.hidden_size,
            "num_layers": text.num_hidden_layers,
            "ffn_dim": text.intermediate_size,
            "max_positions": text.max_position_embeddings,
            "norm_eps": text.rms_norm_eps,
            "rope_theta": rope.get("rope_theta", ModelConfig.rope_theta),
            "tie_embeddings": text.tie_word_embeddings,
            "attention": {
                "variant": "softmax",
                "num_heads": heads,
                "num_kv_heads": getattr(text, "num_key_value_heads", None) or heads,
                "head_dim": getattr(text, "head_dim", None) or text.hidden_size // heads,
            },
        }
    except AttributeError as error:
        raise CheckpointError(
            f"{name}: its config has no {error.name}, as those of Llama, Qwen, Mistral and Gemma "
            "have: such models are not adapted here"
        ) from None
    return validate(ModelConfig, settings, f"{name}: its config")
