"""Export of trained models for other tools: `difftransformer export`.

Formats: `huggingface` supports every variant and needs this package for loading (with
`--trust_remote_code` or after importing `difftransformer.convert.hf`); `llama` and `diffllama` need
only transformers. All three are written without transformers. `gguf` is for llama.cpp. `peft` is
the adapter of a fine-tuned run, for its base model in the format llama or its pretrained model; Dex
needs `difftransformer.convert.dex` imported.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from difftransformer.convert.checkpoint import ADAPTER, load_model, save_model, verify_checksum
from difftransformer.errors import CheckpointError
from difftransformer.provenance.atomic import sync, write_text

HF_FORMATS = ("huggingface", "llama", "diffllama")
FORMATS = (*HF_FORMATS, "gguf", "peft")
GENERATION = "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def export_model(model: Path, output: Path, format: str = "huggingface") -> None:
    """Write a trained model as a folder for other tools: transformers, `lm_eval`, llama.cpp, peft.

    Args:
        model: Folder of a trained model; its tokenizer, if any, is copied.
        output: Folder to create; it appears when it is complete.
        format: "huggingface", "llama" or "gguf" (variant softmax), "diffllama" (variant
            diff_v1), or "peft" (the adapter of a fine-tuned run).

    Raises:
        CheckpointError: The model is damaged, the format cannot express it, or ``output`` is not
            empty.
    """
    if format not in FORMATS:
        raise CheckpointError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    _require_new(output)
    if format == "peft":
        _export_adapter(model, output)
        return
    if format == "gguf":
        from difftransformer.convert.gguf import write_gguf

        with new_folder(output) as folder:
            write_gguf(load_model(model), model, folder / "model.gguf", _end_of_text_id(model))
        return
    loaded = load_model(model)
    eos = _end_of_text_id(model)
    with new_folder(output) as folder:
        if format == "huggingface":
            save_model(folder, loaded, loaded.config, eos_token_id=eos)
        else:
            from difftransformer.convert.llama import save_llama

            save_llama(folder, loaded, format, eos_token_id=eos)
        write_text(folder / GENERATION, json.dumps({"eos_token_id": eos}) + "\n")
        _copy_tokenizer(model, folder)


def _export_adapter(model: Path, output: Path) -> None:
    path = model / ADAPTER
    verify_checksum(path)
    try:
        with safe_open(path, framework="pt") as file:
            settings = json.loads(file.metadata()["settings"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: no such file; pass a fine-tuned run (with `adapt`)"
        ) from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path}: damaged; adapt the run again") from None
    if not settings:
        raise CheckpointError(
            f"{path}: its fine-tuning method has no adapter: it changed the model's weights"
        )
    from peft import PeftConfig

    import difftransformer.convert.dex  # noqa: F401  (the method of peft)

    config: PeftConfig = PeftConfig.from_peft_type(**settings)  # type: ignore[no-untyped-call]
    with new_folder(output) as folder:
        config.save_pretrained(str(folder))
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _end_of_text_id(folder: Path) -> int | None:
    """Return the id of the tokenizer's end-of-text token.

    None: there is no tokenizer, or a word tokenizer of generated rows, which end by their length.
    """
    for name in (TOKENIZER, TOKENIZER_CONFIG):
        verify_checksum(folder / name)
    if not (folder / TOKENIZER).exists():
        return None
    try:
        description = json.loads((folder / TOKENIZER_CONFIG).read_text(encoding="utf-8"))
        if description.get("difftransformer") == {"kind": "words"}:
            return None
        token = description["eos_token"]
        token = token["content"] if isinstance(token, dict) else token
        if token is None:  # written by transformers for a tokenizer without one
            return None
    except (OSError, ValueError, KeyError, AttributeError):
        raise CheckpointError(
            f"{folder / TOKENIZER_CONFIG}: missing, or names no eos_token; copy the one "
            f"beside the dataset's {TOKENIZER}"
        ) from None
    try:  # parsed here, since the core does not depend on the package tokenizers
        tokenizer = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
        vocabulary = tokenizer["model"]["vocab"]
        if isinstance(vocabulary, list):  # pieces with their scores
            vocabulary = {piece: index for index, (piece, _) in enumerate(vocabulary)}
        added = {entry["content"]: entry["id"] for entry in tokenizer["added_tokens"]}
        token_id: int | None = (vocabulary | added).get(token)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / TOKENIZER}: not a tokenizer ({' '.join(str(error).split())}); copy the one "
            "beside the dataset's manifest"
        ) from None
    if token_id is None:
        raise CheckpointError(f"{folder / TOKENIZER}: has no token {token!r}, its eos_token")
    return token_id


def _copy_tokenizer(source: Path, target: Path) -> None:
    for name in (TOKENIZER, TOKENIZER_CONFIG):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def _require_new(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise CheckpointError(f"{output}: exists and is not empty; choose a new folder")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to ``output`` if the block succeeds."""
    _require_new(output)
    temporary = output.with_name(f".{output.name}.{os.getpid()}.partial")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        temporary.replace(output)
        sync(output.parent)
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(temporary):
            error.filename = str(output)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
