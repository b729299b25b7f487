"""Resolved configs of training and data jobs, and pretrained models."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, model_validator

from difftransformer.config.base import Settings, setting
from difftransformer.config.data import DatasetConfig
from difftransformer.config.inheritance import flat
from difftransformer.config.training import TrainingConfig
from difftransformer.config.validation import validate, validate_part
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import options_class
from difftransformer.models.config import ModelConfig

PRETRAINED_BASE = "pretrained_base"
"""Run of the pretrained model in the setting `pretrained`, from which adaptations start."""
PRETRAINED_SEED = 0
"""Seed under which a pretrained model is evaluated, which has one result for all seeds."""
_COMMIT = re.compile("[0-9a-f]{40}")
NOT_OF_WEIGHTS = ("rope_theta", "max_positions", "residual_in_fp32")
"""Model settings that may differ between a run and the parent run whose weights it loads."""


class PretrainedOptions(Settings):
    """Options for loading a pretrained model; the defaults run no code of the model's authors."""

    revision: str | None = setting(
        None,
        meaning="With `pretrained`: commit, tag or branch of the hub; null: main. With "
        "`trust_remote_code` a commit",
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
        False,
        meaning="With `pretrained`: run the code that comes with the model, from the commit in "
        "`revision` or from its folder. Code of another repository is refused",
    )

    def require_pin(self, name: str) -> None:
        """Check that remote code is pinned to a commit, since branches and tags can move.

        Args:
            name: The model's id on the hub, or its folder.

        Raises:
            ValueError: `trust_remote_code` is set, and `revision` is not a commit.
        """
        pinned = _model_folder(name) is not None or _COMMIT.fullmatch(self.revision or "")
        if self.trust_remote_code and not pinned:
            raise ValueError(
                "trust_remote_code needs the commit whose code is trusted as `revision`, 40 "
                f"hexadecimal digits, got {self.revision or 'none'}: read the code at a commit of "
                f"https://huggingface.co/{name}/commits/main and copy its id"
            )


class PretrainedModel(PretrainedOptions):
    """A pretrained model with its loading options, as jobs get it."""

    name: str = setting(meaning="Id on the Hugging Face hub, or a folder", min_length=1)

    @model_validator(mode="after")
    def _trusted_code_is_pinned(self) -> Self:
        self.require_pin(self.name)
        return self

    @property
    def folder(self) -> Path | None:
        """Local folder of the model, which need not exist; None for an id of the hub."""
        return _model_folder(self.name)


def _model_folder(name: str) -> Path | None:
    path = Path(name).expanduser()
    is_path = path.is_absolute() or name.startswith(".") or name.count("/") > 1
    return path if is_path or path.is_dir() else None


def _with_options(model: Any) -> Any:
    """Validate the attention settings with the options class of their variant."""
    options = model.get("attention") if isinstance(model, dict) else None
    if not isinstance(options, dict):
        return model
    location = "model.attention"
    return model | {"attention": validate(options_class(options, location), options, location)}


class RunSettings(Settings):
    """Model and training settings of a run; recipes and overrides set a part of them."""

    model: Annotated[ModelConfig, BeforeValidator(_with_options)] = setting(
        meaning="The architecture."
    )
    training: TrainingConfig = setting(meaning="How it is trained.")


def check_settings(layer: Mapping[str, Any], location: str) -> None:
    """Check the keys and values of a part of a run's settings.

    Attention settings are not checked here, since their class depends on the variant.

    Args:
        layer: The part, with keys ``model`` and ``training``.
        location: File and key path of the part, for error messages.

    Raises:
        ConfigError: A key is unknown, or a value has a wrong type or size.
    """
    model = layer.get("model")
    if isinstance(model, Mapping):
        if not isinstance(attention := model.get("attention", {}), Mapping):
            raise ConfigError(
                f"{location}: model.attention: needs a mapping of keys, got {attention!r}"
            )
        without_attention = {key: value for key, value in model.items() if key != "attention"}
        layer = {**layer, "model": without_attention}
    validate_part(RunSettings, layer, location)


class RunConfig(RunSettings):
    """Resolved config of a training job: one run at one scale."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    dataset: str = setting(meaning="Name of the packed dataset it trains on.")
    init_from: str | None = setting(
        None, meaning="Run whose trained weights it starts from; null: from scratch."
    )
    pretrained: PretrainedModel | None = setting(
        None, meaning="Pretrained model that is adapted; null: the run of `init_from`."
    )
    adapt: dict[str, Any] | None = setting(
        None,
        meaning="How the run that it starts from is adapted: `method`, a file of training/methods, "
        "and its settings; null: all of the model trains, as in a run from scratch.",
    )

    def decisive(self) -> dict[str, Any]:
        """Return the settings that determine the run's results, up to rounding.

        The number of processes, activation checkpointing and the steps between checkpoints are not
        included, so a training resumes from its checkpoints when these settings change.
        """
        values = self.model_dump(mode="json")
        for name in ("world_size", "activation_checkpointing", "checkpoint_every"):
            del values["training"][name]
        return values

    @model_validator(mode="after")
    def _one_process_adapts(self) -> Self:
        if self.adapt is not None and self.training.world_size > 1:
            raise ValueError(
                f"training.world_size is {self.training.world_size}, but adaptation runs in one "
                "process: set training.world_size to 1"
            )
        if self.adapt is not None and self.training.document_mask:
            raise ValueError(
                "training.document_mask is for models that are pre-trained: leave it out"
            )
        if self.adapt is not None and self.training.activation_checkpointing == "selective":
            raise ValueError(
                "training.activation_checkpointing: selective works in pretraining; set it to layer"
            )
        return self


class ResolvedDataset(Settings):
    """Resolved config of the tokenizer and tokenization jobs of one dataset at one scale."""

    scale: str = setting(meaning="Name of the scale the dataset was resolved at.")
    dataset: str = setting(meaning="Name of the dataset in datasets.yaml.")
    config: DatasetConfig = setting(meaning="Sources, mixture, tokenizer and budgets.")


def require_same_model(child: ModelConfig, parent: ModelConfig, location: str, name: str) -> None:
    """Check that a child run's model can load the weights of its parent run.

    Args:
        child: Model config of the child run.
        parent: Model config of the parent run.
        location: Key path of the reference to the parent, for error messages.
        name: Name of the parent run, for error messages.

    Raises:
        ConfigError: The configs differ in more than `NOT_OF_WEIGHTS`; names the first such key.
    """
    ours, theirs = (dict(flat(asdict(model))) for model in (child, parent))
    for key in {**ours, **theirs}:
        if key not in NOT_OF_WEIGHTS and ours.get(key) != theirs.get(key):
            raise ConfigError(
                f"{location}: model.{key} is {ours.get(key)}, in run {name} it is "
                f"{theirs.get(key)}: "
                f"a run can continue another one if their models differ in nothing but "
                f"{', '.join(NOT_OF_WEIGHTS)}"
            )


def same_token_ids(config: DatasetConfig, other: DatasetConfig) -> bool:
    """Return whether two datasets with different tokenizer files have the same token ids."""
    if config.generated is not None and other.generated is not None:
        same_kind = type(config.generated) is type(other.generated)
        return same_kind and config.generated.vocabulary == other.generated.vocabulary
    fixed = config.tokenizer.kind in ("tiktoken", "huggingface")
    return fixed and config.tokenizer == other.tokenizer
