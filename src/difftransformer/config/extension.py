"""What a run must share with the run that it continues."""

from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.config.model import ModelConfig
from difftransformer.errors import ConfigError

OF_POSITIONS = ("rope_theta", "max_positions")
"""Settings of the model that its weights do not depend on: what a longer context changes."""


def require_same_model(child: ModelConfig, parent: ModelConfig, where: str, name: str) -> None:
    """Check that weights of ``parent`` are weights of ``child``; both are resolved.

    Args:
        child: The model that goes on.
        parent: The model that was trained.
        where: Place of the mistake, for errors.
        name: Run of the parent, for errors.

    Raises:
        ConfigError: They differ in more than the settings of positions; names the first key.
    """
    ours, theirs = _flat(child), _flat(parent)
    for key in {**ours, **theirs}:
        if key not in OF_POSITIONS and ours.get(key) != theirs.get(key):
            raise ConfigError(
                f"{where}: model.{key} is {ours.get(key)}, in run {name} it is {theirs.get(key)}: "
                f"a run can continue another one if their models differ in nothing but "
                f"{' and '.join(OF_POSITIONS)}"
            )


def same_token_ids(one: DatasetConfig, other: DatasetConfig) -> bool:
    """Whether ids mean the same in two datasets that share no tokenizer file."""
    if one.generated is not None and other.generated is not None:
        same_kind = type(one.generated) is type(other.generated)
        return same_kind and one.generated.vocabulary == other.generated.vocabulary
    fixed = one.tokenizer.kind in ("tiktoken", "huggingface")
    return fixed and one.tokenizer == other.tokenizer


def _flat(model: ModelConfig) -> dict[str, Any]:
    values = model.model_dump(mode="json")
    attention = values.pop("attention")
    return values | {f"attention.{key}": value for key, value in attention.items()}
