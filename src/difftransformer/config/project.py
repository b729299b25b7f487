"""The YAML files of ``config/`` as typed entries, before they are resolved."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from difftransformer.config.base import Name, Settings, setting
from difftransformer.config.inheritance import Layers
from difftransformer.config.judges import Judges, JudgesConfig
from difftransformer.config.pretrained import PretrainedBase, named
from difftransformer.config.run import PretrainedModel, PretrainedOptions
from difftransformer.config.validation import validate
from difftransformer.config.yaml_files import parse_value, read_yaml
from difftransformer.errors import ConfigError, nearest

MOST_SEEDS = 1000
LARGEST_SEED = 2**32 - 1
"""NumPy accepts no larger seed."""


def _seeds(value: Any) -> Any:
    """Accept a number of seeds, such as ``SEEDS=3``, in place of a list of seeds."""
    if value is None or isinstance(value, list):
        return value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SEEDS:
        raise ValueError(
            f"needs a list of seeds, or how many there shall be (1 to {MOST_SEEDS}), got {value!r}"
        )
    return value


def _distinct(seeds: list[int]) -> list[int]:
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        raise ValueError(f"must be distinct and from 0 to {LARGEST_SEED}, got {seeds[:20]}")
    return seeds


Seeds = Annotated[list[int], Field(min_length=1, max_length=MOST_SEEDS), AfterValidator(_distinct)]


def _plain_path(path: str) -> str:
    if not re.fullmatch(r"[\w./+@=][\w./+@=-]*", path):
        raise ValueError(
            f"needs a path of letters, digits and . _ / + @ = - alone, got {path!r}; choose "
            "another folder, or link to this one"
        )
    return path


class TrackingConfig(Settings):
    """Settings of experiment tracking with MLflow."""

    uri: str | None = setting(
        None,
        meaning="MLflow tracking URI; null is SQLite below the results folder, 'off' is no "
        "tracking. The environment variable MLFLOW_TRACKING_URI wins over it, and it alone may "
        "hold a user, a password or a token",
        source="MLflow",
    )


class ProjectConfig(Settings):
    """``config/config.yaml``: the artifacts to build, the scale, the seeds and other settings."""

    scale: Name = setting(
        "tiny", meaning="File of config/scales to use: smoke, tiny, small, gpu, paper"
    )
    seeds: Annotated[Seeds | int | None, BeforeValidator(_seeds)] = setting(
        None,
        meaning="Seeds of every run, as a list, or as a count of the first ones that are not "
        "exploratory at the scale; each sets initial weights and data order. null: as many as the "
        "scale gives each artifact",
    )
    default_targets: list[str] = setting(
        meaning="Artifacts that a bare `snakemake` or `make reproduce` builds"
    )
    overrides: dict[Name, dict[str, Any]] = setting(
        {},
        meaning="Overrides of single runs for this call: run, then keys of `model` and `training`, "
        "such as {diff: {training: {lr: 0.002}}}",
    )
    results: Annotated[str, AfterValidator(_plain_path)] = setting(
        "results",
        meaning="Folder of all results; it is part of shell commands, so its path must not contain "
        "blanks or special characters",
        unit="path",
    )
    corpus: str | None = setting(
        None,
        meaning="Entry of datasets.yaml on which language-modelling recipes train instead of the "
        "scale's corpus",
    )
    second_corpus: str | None = setting(
        None,
        meaning="Entry of datasets.yaml that replaces `second_text`, to which trained models are "
        "adapted; its base is the first corpus",
    )
    pretrained: Annotated[PretrainedBase | None, BeforeValidator(named)] = setting(
        None,
        meaning="Pretrained model to adapt instead of the pipeline's own: an id of the Hugging "
        "Face hub, a folder, or a mapping with more options, see `pretrained` below",
    )
    benchmarks: str | None = setting(
        None,
        meaning="Source of the items of suites of language understanding, mathematics, "
        "hallucination and many-shot learning (unless generated), over the scale's: 'hub', "
        "'builtin', or a folder with <task>/<split>.jsonl or .jsonl.gz",
    )
    judge: Judges = setting(
        ["lexical"],
        meaning="Judges of contextual hallucination: 'lexical', 'endpoint', 'both', or a list; "
        "columns without a judge's name belong to the first",
    )
    judges: JudgesConfig = setting(JudgesConfig(), meaning="Settings of the judges")
    tracking: TrackingConfig = setting(TrackingConfig(), meaning="Mirroring of runs to MLflow")


class MatchEntry(Settings):
    """Setting that makes a run match the parameters or FLOPs of another run by its ffn_dim."""

    to: Name = setting(meaning="Reference run, sized at the recipe of the matched run")
    by: Literal["parameters", "training_flops"] = setting(
        "parameters",
        meaning="Quantity to match: parameters, or training FLOPs per token at the run's seq_len",
    )


class RunEntry(PretrainedOptions):
    """An entry of ``runs.yaml``: a base run and its overrides, or a pretrained model."""

    base: str | None = setting(None, meaning="Run whose settings this one inherits")
    recipe: str | None = setting(
        None, meaning="Training recipe of the scale: sizes, data, budget. Inherited from base"
    )
    init_from: str | None = setting(
        None,
        meaning="Run whose trained weights of the same seed initialize this one; null: random "
        "weights. Inherited from base",
    )
    adapt: dict[str, Any] | None = setting(
        None,
        meaning="Adaptation method for the run of init_from: `method`, a file of training/methods, "
        "and its settings; null: all weights are trained. Inherited from base as a whole",
    )
    label: str = setting(meaning="Name of the row in tables and figures", min_length=1)
    color: int | None = setting(
        None,
        meaning="Index of color, dash and marker in all figures: 0 gray, 1 blue, 2 green, 3 red, "
        "4 orange, 5 purple, 6 brown; from 7 on the same colors with other dashes and markers. "
        "Where "
        "a figure has it already, or without one, the next free index is used. Inherited from base",
        ge=0,
        lt=28,
    )
    overrides: dict[str, Any] = setting(
        {}, meaning="Settings that differ from the base: keys of `model` and `training`"
    )
    save_checkpoints_at: list[Annotated[float, Field(gt=0, lt=1)]] = setting(
        [],
        meaning="Fractions of training at which intermediate checkpoints are saved, in addition to "
        "those of its recipe. Not inherited from base",
    )
    match: MatchEntry | None = setting(
        None,
        meaning="Run whose size this one matches by its ffn_dim; null: ffn_dim of the recipe. "
        "Inherited from base",
    )
    pretrained: str | None = setting(
        None, meaning="Id on the Hugging Face hub, or a folder, of a model that is evaluated as is"
    )
    parameters: float | None = setting(
        None,
        meaning="With `pretrained`: number of parameters, for cost estimates only",
        unit="parameters",
        gt=0,
    )

    @model_validator(mode="after")
    def _trained_or_pretrained(self) -> Self:
        ours = {"base", "recipe", "init_from", "adapt", "overrides", "save_checkpoints_at", "match"}
        ours &= self.model_fields_set
        theirs = {*PretrainedOptions.model_fields, "parameters"} & self.model_fields_set
        if self.pretrained is not None and ours:
            raise ValueError(f"a pretrained model is not trained: take out {sorted(ours)}")
        if self.pretrained is None and theirs:
            raise ValueError(f"{sorted(theirs)} belong to a model with `pretrained`")
        return self

    @model_validator(mode="after")
    def _remote_code_is_pinned(self) -> Self:
        if self.pretrained is not None:
            self.require_pin(self.pretrained)
        return self

    def differs_only_in_recipe(self, base: "RunEntry") -> bool:
        """Return whether a run differs from its base run only in recipe, label and color."""
        keys = ("init_from", "adapt", "match")
        alike = all(getattr(self, key) == getattr(base, key) for key in keys)
        return alike and not self.overrides and not self.save_checkpoints_at

    def own_training(self, inherited: Mapping[str, Any]) -> dict[str, Any]:
        """Return the training settings that other runs do not inherit from this one.

        These are the fractions of training at which intermediate checkpoints are saved.

        Args:
            inherited: Merged settings of the recipe and of the base runs.
        """
        if not self.save_checkpoints_at:
            return {}
        fractions = {
            *inherited.get("training", {}).get("save_checkpoints_at", []),
            *self.save_checkpoints_at,
        }
        return {"training": {"save_checkpoints_at": sorted(fractions)}}

    def pretrained_model(self) -> PretrainedModel | None:
        """Return the pretrained model of the entry, or None for a run that is trained here."""
        if self.pretrained is None:
            return None
        options = {name: getattr(self, name) for name in PretrainedOptions.model_fields}
        return PretrainedModel(name=self.pretrained, **options)


def _indented(runs: Any) -> Any:
    """Refuse the key of a run in the place of a run's name, which means missing indentation."""
    strayed = set(RunEntry.model_fields) & set(runs) if isinstance(runs, Mapping) else set()
    for key in sorted(strayed):
        raise ValueError(f"'{key}' is a key of a run, not a run: indent it below the run it is of")
    return runs


class RunsFile(Settings):
    """``config/runs.yaml``: all runs by name."""

    runs: Annotated[dict[Name, RunEntry], BeforeValidator(_indented)] = setting(
        meaning="Every run by its id"
    )


class RecipeEntry(Settings):
    """A training recipe: data, sizes and budget that all runs of an experiment share at a scale."""

    base: str | None = setting(
        None, meaning="Recipe of the same file whose settings this one inherits"
    )
    dataset: str | None = setting(None, meaning="Entry of datasets.yaml; inherited from base")
    model: dict[str, Any] = setting({}, meaning="Settings of the model, see ModelConfig")
    training: dict[str, Any] = setting({}, meaning="Settings of training, see TrainingConfig")


class GridEntry(Settings):
    """Runs whose learning rates are swept over the same grid."""

    runs: list[str] = setting(meaning="Runs whose learning rate is swept", min_length=1)
    learning_rates: list[Annotated[float, Field(gt=0)]] = setting(
        meaning="Peak learning rates, the same for every run, so that none gets more effort",
        min_length=2,
    )


class SweepEntry(Settings):
    """A learning-rate sweep with the same grid and budget for all architectures of a recipe."""

    grids: list[GridEntry] = setting(meaning="One grid for each recipe", min_length=1)
    seeds: Seeds | None = setting(
        None,
        meaning="Seeds of the sweep; not those of the tables, so that the choice is not made "
        "on the runs it is used for; null: those of a table, for a sweep that a claim is about",
    )

    def rates(self) -> dict[str, list[float]]:
        """Return the learning rates to sweep for each run."""
        return {run: grid.learning_rates for grid in self.grids for run in grid.runs}


class DatasetsFile(Settings):
    """``config/datasets.yaml``; entries are validated after the scale's changes are merged."""

    datasets: dict[Name, dict[str, Any]] = setting(meaning="Corpora by name, see DatasetConfig")


class EvaluationsFile(Settings):
    """``config/evaluations.yaml``; entries are validated after the scale's changes are merged."""

    suites: dict[Name, dict[str, Any]] = setting(meaning="Evaluation suites by name")


def load_project(
    folder: Path, overrides: Mapping[str, Any], files: Sequence[Path] = ()
) -> tuple[ProjectConfig, Layers]:
    """Return the settings of config.yaml with overrides applied, and the location that set each.

    Args:
        folder: Folder of the configuration.
        overrides: Values from the command line for keys of config.yaml (see `parse_settings`).
        files: YAML files with keys of config.yaml. They take precedence over config.yaml, and
            ``overrides`` take precedence over them.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
    """
    file, fields = folder / "config.yaml", ProjectConfig.model_fields
    sources = [(read_yaml(path), str(path), f"{path}: ") for path in files]
    sources += [(dict(overrides), "--config", "--config ")]
    if not file.exists():
        raise ConfigError(
            f"{file}: no such file: this command runs in a checkout of the project; go to its "
            "folder, or name the folder of a configuration"
        )
    layers = Layers().add(read_yaml(file), str(file))
    for values, origin, prefix in sources:
        for key in values:
            if key not in fields:
                key_text = key if key.isprintable() else repr(key)
                raise ConfigError(f"{prefix}{key_text}: unknown key{nearest(key, fields)}")
        layers.add(values, origin)
    return validate(ProjectConfig, layers.values, str(file), layers.origin), layers


def parse_settings(arguments: Iterable[str]) -> dict[str, Any]:
    """Return the keys and values in ``key=value`` arguments, with the values parsed as YAML.

    Raises:
        ConfigError: An argument has no "=", a value is not valid YAML, or a key occurs twice.
    """
    settings: dict[str, Any] = {}
    for word in arguments:
        key, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"--config {key}: takes key=value")
        if key in settings:
            raise ConfigError(f"--config {key}: is given twice; remove one")
        settings[key] = parse_value(text, f"--config {key}")
    return settings
