"""Write a trained model as a folder for the Hugging Face Hub: `difftransformer publish`."""

import json
import re
import shutil
from pathlib import Path

from difftransformer.convert.checkpoint import finetuned_model
from difftransformer.convert.export import (
    GENERATION,
    HF_FORMATS,
    TOKENIZER_CONFIG,
    export_model,
    new_folder,
)
from difftransformer.errors import CheckpointError, ConfigError
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.masking import without_folders
from difftransformer.publishing.card import MODEL_FILES, model_card

CARD = "README.md"
ORIGIN = "provenance.json"
"""File with the content of training.json without local folders. The name training.json is not used,
since it would say that the exported files are those of the training."""
_PATHS = re.compile(r".*(?:_path|_file|_dir)$")
"""Pattern of the keys under which transformers and tokenizers store the path of their source."""


def publish(
    run: Path, output: Path, format: str = "huggingface", license: str | None = None
) -> None:
    """Write a folder with weights, config, tokenizer, model card and provenance.json of a model.

    Args:
        run: Folder of a trained run, or of a difftransformer model saved by transformers, which has
            no training.json.
        output: Folder to create. The model card is written last, so a folder with one is complete.
        format: A transformers format of `export`; adapted pretrained models allow only
            "huggingface".
        license: Identifier of the license of the weights, for the model card. None means mit, but
            an adapted pretrained model requires a license.

    Raises:
        ConfigError: ``format`` is not a transformers format, or not allowed for an adapted
            pretrained model, or such a model has no license.
        DataError: ``run`` has no model, or is damaged.
        CheckpointError: The format cannot represent the model, ``output`` is not empty, or the file
            system refused to write.
    """
    card = _card(run, output, format, license)
    if finetuned_model(run) is None:
        export_model(run, output, format)
    else:
        _copy(run, output)
    try:
        if (run / TRAINING).is_file():
            (output / ORIGIN).write_bytes(_origin(run / TRAINING))
        forget_folders(output)
        write_text(output / CARD, card)
    except OSError as error:
        raise CheckpointError(f"{output}: {error.strerror}; make room and publish again") from None


def is_published(
    run: Path, output: Path, format: str = "huggingface", license: str | None = None
) -> bool:
    """Return whether ``output`` has the model card and provenance that `publish` would write now.

    Arguments and errors are those of `publish`.
    """
    card = _card(run, output, format, license)
    try:
        if (output / CARD).read_text(encoding="utf-8") != card:
            return False
        # Without training.json, the card contains the digest of the model's files.
        record = run / TRAINING
        return not record.is_file() or (output / ORIGIN).read_bytes() == _origin(record)
    except OSError:
        return False


def _origin(record: Path) -> bytes:
    """Return a training.json without local folders; the bytes are unchanged if it has none."""
    content = record.read_bytes()
    settings = json.loads(content)
    public = without_folders(settings)
    return content if public == settings else (json.dumps(public, indent=2) + "\n").encode()


def forget_folders(model: Path) -> None:
    """Shorten the paths in a saved model's config files to their last part, in place.

    Only values of keys that are named for a path are changed, since a token may look like a path.

    Args:
        model: Folder of the model.
    """
    for path in (model / name for name in ("config.json", GENERATION, TOKENIZER_CONFIG)):
        if path.is_file():
            settings = json.loads(path.read_bytes())
            paths = {
                key: without_folders(value) for key, value in settings.items() if _PATHS.match(key)
            }
            if (public := settings | paths) != settings:
                write_text(path, json.dumps(public, indent=2) + "\n")


def _card(run: Path, output: Path, format: str, license: str | None) -> str:
    if format not in HF_FORMATS:
        raise ConfigError(
            f"--format {format}: a folder for the hub is one of transformers: "
            f"{', '.join(HF_FORMATS)}; `difftransformer export` knows others"
        )
    elsewhere, as_it_is = finetuned_model(run) is not None, format == "huggingface"
    if elsewhere and not as_it_is:
        raise ConfigError(
            f"{run}: adapts a pretrained model, which stays of its class: publish it without "
            "--format"
        )
    own_code = as_it_is and not elsewhere
    return model_card(run, license, output.resolve().name, own_code=own_code)


def _copy(run: Path, output: Path) -> None:
    try:
        with new_folder(output) as aside:
            for path in (path for pattern in MODEL_FILES for path in run.glob(pattern)):
                shutil.copyfile(path, aside / path.name)
    except OSError as error:
        raise CheckpointError(f"{output}: {error.strerror}; make room and publish again") from None
