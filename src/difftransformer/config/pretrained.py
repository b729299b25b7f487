"""Models from elsewhere: a Hugging Face id or a folder, evaluated as they are."""

from pathlib import Path
from typing import Literal

from difftransformer.config.base import Settings, setting

PRETRAINED_SEED = 0
"""Seed under which a model from elsewhere is evaluated: every seed would give the same."""


class PretrainedOptions(Settings):
    """How a model from elsewhere is loaded; the defaults run no code of a model's author."""

    revision: str | None = setting(
        None, meaning="With `pretrained`: commit, tag or branch of the hub; null: main"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", meaning="With `pretrained`: type of the weights; auto: as its config says"
    )
    safetensors: bool = setting(
        True,
        meaning="With `pretrained`: take safetensors alone; false also takes pickled weights, read "
        "by torch without running code",
    )
    trust_remote_code: bool = setting(
        False, meaning="With `pretrained`: run the modelling code that comes with the model"
    )


class PretrainedModel(PretrainedOptions):
    """A model from elsewhere, resolved."""

    name: str = setting(meaning="Id on the Hugging Face hub, or a folder")

    @property
    def folder(self) -> Path | None:
        """The folder, None for an id of the hub; what looks like a path is one, there or not."""
        path = Path(self.name).expanduser()
        is_path = path.is_absolute() or self.name.startswith(".") or self.name.count("/") > 1
        return path if is_path or path.is_dir() else None
