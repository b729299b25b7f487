"""Model folders for other tools, and back: `difftransformer export`, and its inverse.

Formats: `huggingface` keeps every variant as it is and needs this package where it is loaded (with
`--trust_remote_code` or after importing `difftransformer.convert.hf`); `llama` and `diffllama` need
transformers alone. All three are written without it. `gguf` is llama.cpp's. `peft` is the adapter
of an adapted run, for its base in the format llama, or for the pretrained model that it is of;
Dex needs `difftransformer.convert.dex` imported.
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

OF_TRANSFORMERS = ("huggingface", "llama", "diffllama")
FORMATS = (*OF_TRANSFORMERS, "gguf", "peft")
GENERATION = "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def export_model(model: Path, output: Path, format: str = "huggingface") -> None:
    """Write a trained model as a folder for other tools: transformers, `lm_eval`, llama.cpp, peft.

    Args:
        model: Folder of a trained model; a tokenizer in it comes along.
        output: Folder to make; it appears when it is complete.
        format: "huggingface", "llama" or "gguf" (variant softmax), "diffllama" (variant
            diff_v1), or "peft" (the adapter of an adapted run).

    Raises:
        CheckpointError: If the model is damaged, or the format cannot express it, or ``output``
            is not empty.
    """
    if format not in FORMATS:
        raise CheckpointError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    _require_new(output)
    if format == "peft":
        _export_adapter(model, output)
        return
    if format == "gguf":
        from difftransformer.convert.gguf import write_gguf

        with new_folder(output) as aside:
            write_gguf(load_model(model), model, aside / "model.gguf", _end_of_text_id(model))
        return
    loaded = load_model(model)
    eos = _end_of_text_id(model)
    with new_folder(output) as aside:
        if format == "huggingface":
            save_model(aside, loaded, loaded.config, eos_token_id=eos)
        else:
            from difftransformer.convert.llama import save_llama

            save_llama(aside, loaded, format, eos_token_id=eos)
        write_text(aside / GENERATION, json.dumps({"eos_token_id": eos}) + "\n")
        _copy_tokenizer(model, aside)


def _export_adapter(model: Path, output: Path) -> None:
    path = model / ADAPTER
    verify_checksum(path)
    try:
        with safe_open(path, framework="pt") as file:
            settings = json.loads(file.metadata()["settings"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; name a run with `adapt`") from None
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        raise CheckpointError(f"{path}: damaged; adapt the run again") from None
    if not settings:
        raise CheckpointError(
            f"{path}: its method has no adapter, it changed the model's own weights"
        )
    from peft import PeftConfig

    import difftransformer.convert.dex  # noqa: F401  (the method of peft)

    config: PeftConfig = PeftConfig.from_peft_type(**settings)  # type: ignore[no-untyped-call]
    with new_folder(output) as aside:
        config.save_pretrained(str(aside))
        save_file(tensors, aside / "adapter_model.safetensors", metadata={"format": "pt"})


def _end_of_text_id(folder: Path) -> int | None:
    """Return the id of the tokenizer's end-of-text token; None where there is no tokenizer, or one
    of the words of generated rows, which end by their length.
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
        if token is None:  # which transformers writes of a tokenizer that has none
            return None
    except (OSError, ValueError, KeyError, AttributeError):
        raise CheckpointError(
            f"{folder / TOKENIZER_CONFIG}: missing, or names no eos_token; copy the one that lies "
            f"beside the dataset's {TOKENIZER}"
        ) from None
    try:  # by hand: the core, which exports, does without the package tokenizers
        known = json.loads((folder / TOKENIZER).read_text(encoding="utf-8"))
        vocabulary = known["model"]["vocab"]
        if isinstance(vocabulary, list):  # of pieces with their scores
            vocabulary = {piece: place for place, (piece, _) in enumerate(vocabulary)}
        added = {one["content"]: one["id"] for one in known["added_tokens"]}
        number: int | None = (vocabulary | added).get(token)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{folder / TOKENIZER}: not a tokenizer ({' '.join(str(error).split())}); copy the one "
            "that lies beside the dataset's manifest"
        ) from None
    if number is None:
        raise CheckpointError(f"{folder / TOKENIZER}: has no token {token!r}, its eos_token")
    return number


def _copy_tokenizer(source: Path, target: Path) -> None:
    for name in (TOKENIZER, TOKENIZER_CONFIG):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)


def _require_new(output: Path) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise CheckpointError(f"{output}: exists and is not empty; name a new folder")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Yield a folder aside that becomes ``output`` when the block ends well."""
    _require_new(output)
    aside = output.with_name(f".{output.name}.{os.getpid()}.partial")
    aside.mkdir(parents=True)
    try:
        yield aside
        for path in (*aside.rglob("*"), aside):
            sync(path)
        aside.replace(output)
        sync(output.parent)
    except OSError as error:
        if error.filename is None or Path(error.filename).is_relative_to(aside):
            error.filename = str(output)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
