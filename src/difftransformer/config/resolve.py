"""From the files of ``config/`` to the resolved slice that one job gets.

``Catalogue.load`` reads and checks the files; its methods merge base entries, the scale's setup and
an entry's own changes, and validate the outcome. A slice refers to nothing outside itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from difftransformer.config.artifacts import ArtifactConfig, ArtifactsFile, ClaimsFile, PaperFile
from difftransformer.config.data import DatasetConfig
from difftransformer.config.evaluation import SuiteConfig
from difftransformer.config.inheritance import Layers, ancestry
from difftransformer.config.pretrained import PretrainedModel
from difftransformer.config.project import (
    DatasetsFile,
    EvaluationsFile,
    ProjectConfig,
    RunEntry,
    RunsFile,
    ScaleConfig,
    SweepEntry,
)
from difftransformer.config.run import RunSlice
from difftransformer.config.stand_ins import at_scale, check_stand_ins
from difftransformer.config.validation import lookup, nearest, validate
from difftransformer.config.yaml_files import read_yaml
from difftransformer.errors import ConfigError

VOCABULARY_MULTIPLE = 64
"""Vocabularies are padded to a multiple of this; cl100k_base gives the paper's 100288."""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Everything that ``config/`` declares, at one scale."""

    folder: Path
    project: ProjectConfig
    scale: ScaleConfig
    runs: dict[str, RunEntry]
    datasets: dict[str, dict[str, Any]]
    suites: dict[str, dict[str, Any]]
    artifacts: dict[str, ArtifactConfig]
    claims: ClaimsFile
    paper: PaperFile

    @classmethod
    def load(cls, folder: Path, overrides: Mapping[str, Any] | None = None) -> "Catalogue":
        """Read the configuration folder; ``overrides`` are keys of config.yaml.

        Raises:
            ConfigError: At the first thing that cannot be used, in one line.
        """
        project = _load_project(folder, overrides or {})
        scales = {path.stem: path for path in sorted((folder / "scales").glob("*.yaml"))}
        scale_file = lookup(scales, project.scale, "scale", f"{folder / 'config.yaml'}: scale")
        scale: ScaleConfig = validate(ScaleConfig, read_yaml(scale_file), str(scale_file))

        def read(kind: Any, name: str) -> Any:
            return validate(kind, read_yaml(folder / name), str(folder / name))

        runs = dict(read(RunsFile, "runs.yaml").runs)
        for sweep in scale.sweeps.values():
            runs.update(_sweep_runs(runs, sweep, str(scale_file)))
        declared = at_scale(
            read(ArtifactsFile, "artifacts.yaml"),
            read(ClaimsFile, "claims.yaml"),
            read(PaperFile, "paper_values.yaml"),
            check_stand_ins(scale.stand_ins, runs, f"{scale_file}: stand_ins"),
            f"{folder / 'artifacts.yaml'}: artifacts",
        )
        return cls(
            folder=folder,
            project=project,
            scale=scale,
            runs={name: entry for name, entry in runs.items() if name not in scale.stand_ins},
            datasets=read(DatasetsFile, "datasets.yaml").datasets,
            suites=read(EvaluationsFile, "evaluations.yaml").suites,
            artifacts=declared.artifacts,
            claims=declared.claims,
            paper=declared.paper,
        )

    @cached_property
    def scale_file(self) -> str:
        """Path of the scale's file, for errors."""
        return str(self.folder / "scales" / f"{self.project.scale}.yaml")

    def dataset(self, name: str) -> DatasetConfig:
        """Return a dataset with the scale's changes."""
        checked: DatasetConfig = self._changed(
            "datasets", self.datasets, self.scale.datasets, name, DatasetConfig
        )
        return checked

    def suite(self, name: str) -> Any:
        """Return an evaluation suite with the scale's changes and the project's benchmarks."""
        changes = dict(self.scale.suites)
        benchmarks = self.project.benchmarks
        if benchmarks and self.suites.get(name, {}).get("kind") == "language_understanding":
            changes[name] = {**changes.get(name, {}), "data": benchmarks}
        return self._changed("suites", self.suites, changes, name, SuiteConfig)

    def pretrained(self, name: str) -> PretrainedModel | None:
        """Return the model from elsewhere that a run is; None for one that is trained here."""
        place = f"{self.folder / 'runs.yaml'}: runs"
        return lookup(self.runs, name, "run", place).pretrained_model()

    def run(self, name: str) -> RunSlice:
        """Return a run as the training job gets it; ``model.attention`` is not yet checked."""
        chain = self._run_chain(name)
        setup = next((entry.setup for _, entry in reversed(chain) if entry.setup), None)
        place = f"{self.folder / 'runs.yaml'}: runs.{name}"
        if setup is None:
            raise ConfigError(f"{place}: no setup, neither here nor in a base; add `setup: ...`")
        lookup(self.scale.setups, setup, "setup", f"{self.scale_file}: setups")
        layers = Layers()
        for ancestor in ancestry(self.scale.setups, setup, f"{self.scale_file}: setups"):
            changes = ancestor.model_dump(exclude={"base"}, exclude_none=True)
            layers.add(changes, f"{self.scale_file}: setups.{setup}")
        if name in self.scale.learning_rates:
            rate = {"training": {"lr": self.scale.learning_rates[name]}}
            layers.add(rate, f"{self.scale_file}: learning_rates.{name}")
        for ancestor_name, entry in chain:
            layers.add(entry.set, f"{self.folder / 'runs.yaml'}: runs.{ancestor_name}.set")
        return self._run_slice(name, layers, place)

    def _run_slice(self, name: str, layers: Layers, place: str) -> RunSlice:
        values = layers.values
        if "dataset" not in values:
            raise ConfigError(f"{place}: its setup names no dataset; add `dataset: ...`")
        dataset = self.dataset_of(str(values["dataset"]))
        size = self.dataset(dataset).vocab_size
        model = dict(values.get("model", {}))
        if size is not None:
            model.setdefault("vocab_size", -(-size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE)
        raw = {
            **values,
            "scale": self.project.scale,
            "run": name,
            "dataset": dataset,
            "model": model,
        }
        checked: RunSlice = validate(RunSlice, raw, place, layers.origin)
        return checked

    def dataset_of(self, name: str) -> str:
        """Return the dataset that stands in for ``name``: `corpus` replaces text, not tasks."""
        corpus = self.project.corpus
        if corpus is None or self.dataset(name).recall is not None:
            return name
        return corpus

    def _run_chain(self, name: str) -> list[tuple[str, RunEntry]]:
        place = f"{self.folder / 'runs.yaml'}: runs"
        lookup(self.runs, name, "run", place)
        chain = ancestry(self.runs, name, place)
        ids = {id(entry): key for key, entry in self.runs.items()}
        return [(ids[id(entry)], entry) for entry in chain]

    def _changed(
        self,
        section: str,
        entries: Mapping[str, dict[str, Any]],
        changes: Mapping[str, dict[str, Any]],
        name: str,
        kind: Any,
    ) -> Any:
        file = "datasets.yaml" if section == "datasets" else "evaluations.yaml"
        place = f"{self.folder / file}: {section}"
        layers = Layers().add(lookup(entries, name, section[:-1], place), f"{place}.{name}")
        if name in changes:
            layers.add(changes[name], f"{self.scale_file}: {section}.{name}")
        return validate(kind, layers.values, f"{place}.{name}", layers.origin)


def _load_project(folder: Path, overrides: Mapping[str, Any]) -> ProjectConfig:
    place = f"{folder / 'config.yaml'}"
    known = set(ProjectConfig.model_fields)
    for key in overrides:
        if key not in known:
            raise ConfigError(f"--config {key}: unknown key{nearest(key, known)}")
    layers = Layers().add(read_yaml(folder / "config.yaml"), place)
    layers.add({key: _plain(value) for key, value in overrides.items()}, "--config")
    project: ProjectConfig = validate(ProjectConfig, layers.values, place, layers.origin)
    if len(set(project.seeds)) < len(project.seeds) or min(project.seeds) < 0:
        raise ConfigError(
            f"{layers.origin(('seeds',))}: seeds: must be distinct and not negative, "
            f"got {project.seeds}"
        )
    return project


def _plain(value: Any) -> Any:
    """Read a value given on a command line as YAML where it arrives as text."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value


def _sweep_runs(
    runs: Mapping[str, RunEntry], sweep: SweepEntry, scale_file: str
) -> dict[str, RunEntry]:
    expanded = {}
    for name, rates in sweep.rates().items():
        entry = lookup(runs, name, "run", f"{scale_file}: sweeps")
        for index, rate in enumerate(rates):
            expanded[sweep_run(name, index)] = RunEntry(
                base=name,
                label=f"{entry.label}, lr {rate:g}",
                set={"training": {"lr": rate}},
            )
    return expanded


def sweep_run(run: str, index: int) -> str:
    """Return the id of the sweep's run of ``run`` at its ``index``-th learning rate."""
    return f"sweep_{run}_{index}"
