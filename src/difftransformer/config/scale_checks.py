"""What the entries of a scale and of runs.yaml must be by themselves, used or overridden."""

from collections.abc import Iterable, Mapping

from difftransformer.config.project import RunEntry, ScaleConfig
from difftransformer.config.run import RunSettings
from difftransformer.config.validation import lookup, validate_part
from difftransformer.errors import ConfigError


def check_settings(
    scale: ScaleConfig, scale_file: str, runs: Mapping[str, RunEntry], runs_file: str
) -> None:
    """Check setups and the `set` of runs key by key: one that overrides another must not hide it.

    Raises:
        ConfigError: an unknown key, or a value of a wrong type or size.
    """
    for name, setup in scale.setups.items():
        own = setup.model_dump(include={"model", "training"}, exclude_unset=True)
        validate_part(RunSettings, own, f"{scale_file}: setups.{name}")
    for name, entry in runs.items():
        place = f"{scale_file}: runs" if name in scale.runs else f"{runs_file}: runs"
        validate_part(RunSettings, entry.set, f"{place}.{name}.set")


def check_names(
    scale: ScaleConfig,
    scale_file: str,
    *,
    runs: Iterable[str],
    datasets: Iterable[str],
    suites: Iterable[str],
) -> None:
    """Check that what a scale changes is there.

    Raises:
        ConfigError: an unknown name; offers the nearest one.
    """
    for key, what, changed, known in (
        ("datasets", "dataset", scale.datasets, datasets),
        ("suites", "suite", scale.suites, suites),
        ("learning_rates", "run", scale.learning_rates, runs),
    ):
        names = dict.fromkeys(known)
        for name in changed:
            lookup(names, name, what, f"{scale_file}: {key}")


def require_room(size: int, given: object, dataset: str, where: str) -> None:
    """Check that a model's vocabulary is no smaller than that of its data.

    Raises:
        ConfigError: it is.
    """
    if isinstance(given, int) and given < size:
        raise ConfigError(
            f"{where}: model.vocab_size: {given} is less than the {size} token ids of dataset "
            f"{dataset}; raise it, or leave it out"
        )
