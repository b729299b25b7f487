"""Resolution of the YAML files of ``config/`` into the config of each job.

`ConfigResolver.load` reads and checks the files. Its methods merge the settings of base entries, of
the scale's recipe and of an entry itself, and validate the result, which refers to no other entry.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from difftransformer.config import retokenized, scales
from difftransformer.config.artifact_checks import check_artifacts
from difftransformer.config.artifacts import ArtifactConfig, read_artifacts
from difftransformer.config.data import DatasetConfig, require_same_text
from difftransformer.config.evaluation import Suite
from difftransformer.config.evaluations import suite_class, timing_class
from difftransformer.config.inheritance import Layers, ancestry, lineage
from difftransformer.config.papers import PapersFile, check_papers
from difftransformer.config.project import (
    DatasetsFile,
    EvaluationsFile,
    ProjectConfig,
    RunEntry,
    RunsFile,
    load_project,
)
from difftransformer.config.registry import Registry, check_registry, read_registry
from difftransformer.config.run import PRETRAINED_BASE, PretrainedModel, RunConfig, check_settings
from difftransformer.config.scale import ScaleConfig
from difftransformer.config.timing import Timing
from difftransformer.config.tokenizers import vocabulary
from difftransformer.config.validation import validate
from difftransformer.config.yaml_files import validate_yaml, yaml_files
from difftransformer.errors import ConfigError, lookup

SECOND_TEXT = "second_text"
"""Name of the dataset that the setting `second_corpus` replaces."""


@dataclass(frozen=True, eq=False)
class ConfigResolver:
    """Resolver of all entries in ``config/`` at one scale."""

    folder: Path
    project: ProjectConfig
    scale: ScaleConfig
    runs: dict[str, RunEntry]
    datasets: dict[str, dict[str, Any]]
    suites: dict[str, dict[str, Any]]
    artifacts: dict[str, ArtifactConfig]
    registry: Registry
    papers: PapersFile
    key_origins: Layers
    """Location that set each key of config.yaml, for error messages."""

    @classmethod
    def load(
        cls, folder: Path, overrides: Mapping[str, Any] | None = None, files: Sequence[Path] = ()
    ) -> "ConfigResolver":
        """Return a resolver for a configuration folder, after reading and checking all its files.

        Args as for `Plan.load`.

        Raises:
            ConfigError: A file is not valid; the first error, in one line.
        """
        project, key_origins = load_project(folder, overrides or {}, files)
        scale_files = yaml_files(folder / "scales")
        origin = f"{key_origins.origin(('scale',))}: scale"
        file = lookup(scale_files, project.scale, "scale", origin)
        location = str(file)
        scale = validate_yaml(ScaleConfig, file)
        runs = dict(validate_yaml(RunsFile, folder / "runs.yaml").runs)
        runs |= scales.scale_runs(runs, scale, location)
        papers = validate_yaml(PapersFile, folder / "papers.yaml")
        artifacts = read_artifacts(folder / "artifacts", papers)
        check_papers(papers, artifacts, str(folder / "papers.yaml"))
        labels = {name: entry.label for name, entry in runs.items()}
        registry = read_registry(folder / "registry.yaml", papers)
        check_registry(registry, artifacts, str(folder / "registry.yaml"))
        artifacts_folder = str(folder / "artifacts")
        check_artifacts(artifacts, labels, registry.claims, scale, location, artifacts_folder)
        artifacts = scales.with_proxies(scale.proxies, artifacts, runs, location)
        runs_location = f"{folder / 'runs.yaml'}: runs"
        if project.pretrained is not None:
            base = project.pretrained
            runs, artifacts = scales.adapt_pretrained(base, runs, artifacts, runs_location)
        runs = scales.inherited(runs, runs_location)
        runs |= scales.size_grid_runs(runs, artifacts, scale, location, str(folder / "artifacts"))
        runs |= scales.sweep_runs(runs, scale, location)
        runs = scales.inherited(runs, runs_location)
        datasets = validate_yaml(DatasetsFile, folder / "datasets.yaml").datasets
        suites = validate_yaml(EvaluationsFile, folder / "evaluations.yaml").suites
        resolver = cls(
            folder, project, scale, runs, datasets, suites, artifacts, registry, papers, key_origins
        )
        resolver._check_entries()
        return resolver

    def _check_entries(self) -> None:
        """Check every entry on its own, including unused ones and overridden values."""
        scale, file = self.scale, self.scale_file
        runs_file = str(self.folder / "runs.yaml")
        scales.check_entries(scale, file, self.runs, runs_file, self.datasets, self.suites)
        for key in ("corpus", "second_corpus"):
            if (named := getattr(self.project, key)) is not None:
                lookup(self.datasets, named, "dataset", f"{self.key_origins.origin((key,))}: {key}")
        for name in self.datasets:
            self.dataset(name)
        for name, changes in self.project.overrides.items():
            location = f"{self.key_origins.origin(('overrides', name))}: overrides"
            if lookup(self.runs, name, "run", location).pretrained is not None:
                raise ConfigError(
                    f"{location}.{name}: a pretrained model is not trained; remove it"
                )
            check_settings(changes, f"{location}.{name}")
        for name in scale.timings:
            self.timing(name)

    @cached_property
    def runs_location(self) -> str:
        """Path of runs.yaml and key of the runs in it, for error messages."""
        return f"{self.folder / 'runs.yaml'}: runs"

    @cached_property
    def scale_file(self) -> str:
        """Path of the scale's YAML file, for error messages."""
        return str(self.folder / "scales" / f"{self.project.scale}.yaml")

    @cache  # noqa: B019 - a resolver lives as long as the process
    def dataset(self, name: str) -> DatasetConfig:
        """Return the resolved settings of a dataset, merged with its base and the scale's changes.

        For a pretrained model that no run adapts, the training split is only as long as the
        validation split.

        Raises:
            ConfigError: The dataset or its base is unknown, or a setting must be as in the base.
        """
        if (reader := self._reader(name)) is not None:
            model = self.pretrained(reader)
            assert model is not None
            text = self.dataset(retokenized.text_of(name, reader))
            return retokenized.in_ids_of(text, model, trained=reader == PRETRAINED_BASE)
        location = f"{self.folder / 'datasets.yaml'}: datasets"
        lookup(self.datasets, name, "dataset", location)
        layers = Layers()
        for member in self._dataset_chain(name):
            for entry, layer_location in (
                (self.datasets[member], f"{location}.{member}"),
                (self.scale.datasets.get(member, {}), f"{self.scale_file}: datasets.{member}"),
            ):
                changes = {key: value for key, value in entry.items() if key != "base"}
                if member in self._derived:
                    require_same_text(changes, layer_location, "sources" in self.datasets[member])
                if entry is self.datasets[member] and "sources" in changes:
                    layers.values.pop("sources", None)  # the sources replace the base's
                layers.add(changes, layer_location)
        return validate(DatasetConfig, layers.values, f"{location}.{name}", layers.origin)

    def tokenizer_owner(self, dataset: str) -> str:
        """Return the dataset whose tokenizer a dataset uses: its first base, or itself."""
        return dataset if self._reader(dataset) is not None else self._dataset_chain(dataset)[0]

    @cache  # noqa: B019 - a resolver lives as long as the process
    def suite(self, name: str) -> Suite:
        """Return the settings of a suite with the changes of the scale and of `benchmarks`.

        Raises:
            ConfigError: A suite, kind or key is unknown, or a value is not valid.
        """
        location = f"{self.folder / 'evaluations.yaml'}: suites"
        entry = lookup(self.suites, name, "suite", location)
        layers = Layers().add(entry, f"{location}.{name}")
        layers.add(self.scale.suites.get(name, {}), f"{self.scale_file}: suites.{name}")
        kind = suite_class(layers.values.get("kind"), f"{location}.{name}.kind")
        benchmarks = self.project.benchmarks
        if benchmarks is not None and kind.takes_benchmarks(layers.values, benchmarks):
            layers.add({"data": benchmarks}, "benchmarks")
        if kind.repeats is not None and kind.repeats in layers.values:
            repeated = self._repeated(
                layers.values[kind.repeats], f"{location}.{name}.{kind.repeats}"
            )
            layers.add({"suite": repeated}, kind.repeats)
        return validate(kind, layers.values, f"{location}.{name}", layers.origin)

    def _repeated(self, name: Any, location: str) -> dict[str, Any]:
        """Return the settings of the suite ``name``, which another suite repeats."""
        lookup(self.suites, name, "suite", location)
        repeated = self.suite(name)
        if not repeated.repeatable:
            raise ConfigError(
                f"{location}: '{name}' measures {repeated.kind}, which cannot be repeated; name a "
                "suite with one number that a model is better or worse by"
            )
        return repeated.model_dump(mode="json")

    def timing(self, name: str) -> Timing | None:
        """Return the scale's timing settings of an evaluation, or None if it has none."""
        if name not in self.scale.timings:
            return None
        location = f"{self.scale_file}: timings.{name}"
        return validate(timing_class(name, location), self.scale.timings[name], location)

    def entry(self, name: str) -> RunEntry:
        """Return the entry of a run with all inherited keys filled in, except `overrides`.

        Raises:
            ConfigError: The run is unknown; the message offers the nearest name.
        """
        return lookup(self.runs, name, "run", self.runs_location)

    def pretrained(self, name: str) -> PretrainedModel | None:
        """Return the pretrained model of a run, or None if the run is trained here."""
        return self.entry(name).pretrained_model()

    def run(self, name: str, recipe: str | None = None) -> RunConfig:
        """Return the resolved config of a run before `match` changes its sizes."""
        layers = self.layers(name, recipe)
        return validate(RunConfig, layers.values, self._model_location(name), layers.origin)

    def layers(self, name: str, recipe: str | None = None) -> Layers:
        """Return the merged settings of a run before validation."""
        entry = self.entry(name)
        recipe = recipe or entry.recipe
        location = f"{self.runs_location}.{name}"
        if recipe is None:
            raise ConfigError(f"{location}: no recipe here or in a base; add `recipe: ...`")
        origin = f"{location}.recipe: scale {self.project.scale}"
        lookup(self.scale.recipes, recipe, "recipe", origin)
        layers = Layers()
        recipes = f"{self.scale_file}: recipes"
        for member, shared in ancestry(self.scale.recipes, recipe, recipes).items():
            changes = shared.model_dump(exclude={"base"}, exclude_none=True)
            layers.add(changes, f"{recipes}.{member}")
        tuned = scales.tuned_as(
            self.runs, self.scale.learning_rates, name, recipe, self.runs_location
        )
        if tuned is not None:
            rate = {"training": {"lr": self.scale.learning_rates[tuned]}}
            layers.add(rate, f"{self.scale_file}: learning_rates.{tuned}")
        for ancestor, ancestor_entry in ancestry(self.runs, name, self.runs_location).items():
            layers.add(ancestor_entry.overrides, f"{self.runs_location}.{ancestor}.overrides")
        layers.add(entry.own_training(layers.values), f"{location}.save_checkpoints_at")
        layers.add(self.project.overrides.get(name, {}), self._override_location(name))
        layers.values |= self._references(name, layers, location)
        return layers

    def _model_location(self, name: str) -> str:
        """Return the location of a run's model settings, for error messages."""
        changed = "model" in self.project.overrides.get(name, {})
        return (
            f"{self.runs_location}.{name}"
            + f", changed by {self._override_location(name)}" * changed
        )

    def _override_location(self, name: str) -> str:
        return f"{self.key_origins.origin(('overrides', name))}: overrides.{name}"

    def _references(self, name: str, layers: Layers, location: str) -> dict[str, Any]:
        """Return a run's references to other entries, and its model with vocabulary size."""
        values = layers.values
        lineage(self.runs, name, self.runs_location, "init_from", self._parent, "run")
        if "dataset" not in values:
            raise ConfigError(f"{location}: its recipe names no dataset; add `dataset: ...`")
        entry = self.entry(name)
        parent = entry.init_from
        dataset = self.read_by(name, str(values["dataset"]))
        size = self.dataset(dataset).vocab_size
        base = self.project.pretrained if parent == PRETRAINED_BASE else None
        model = dict(values.get("model", {})) if base is None else self._pretrained_sizes
        if size is not None:
            size_location = layers.origin(("model", "vocab_size"))
            model["vocab_size"] = vocabulary(model.get("vocab_size"), size, dataset, size_location)
        return {
            "scale": self.project.scale,
            "run": name,
            "dataset": dataset,
            "init_from": parent,
            "pretrained": None if base is None else self.pretrained(PRETRAINED_BASE),
            "adapt": entry.adapt,
            "model": model,
        }

    def _parent(self, run: str) -> str | None:
        return self.entry(run).init_from

    def members(self, run: str, size_grid: str | None) -> list[str]:
        """Return the run at every recipe of a size grid; without a grid only the run itself."""
        if size_grid is None:
            return [run]
        return list(scales.members(self.runs, run, self.scale.size_grids[size_grid]))

    def dataset_of(self, name: str) -> str:
        """Return the name of the dataset that is used in place of ``name``.

        The setting `corpus` replaces datasets of text, but not generated tasks. A dataset with a
        base keeps its name, and its base is replaced.
        """
        if name == SECOND_TEXT:
            return self.project.second_corpus or name
        corpus = self.project.corpus
        if corpus is None or name in self._derived or self.dataset(name).generated is not None:
            return name
        return corpus

    def read_by(self, run: str, dataset: str) -> str:
        """Return the name of the dataset that a run reads in place of ``dataset``.

        The settings `corpus` and `second_corpus` may replace it, and for a pretrained model it is
        retokenized.
        """
        resolved, owners = self.dataset_of(dataset), (run, self._parent(run))
        pretrained = [run for run in owners if run is not None and self.pretrained(run) is not None]
        return retokenized.name_of(resolved, pretrained[0]) if pretrained else resolved

    def _reader(self, dataset: str) -> str | None:
        """Return the run of the pretrained model for which a dataset is retokenized, or None."""
        pretrained_runs = (run for run, entry in self.runs.items() if entry.pretrained is not None)
        return retokenized.reader_of(dataset, pretrained_runs)

    @cached_property
    def _pretrained_sizes(self) -> dict[str, Any]:
        """Sizes of the pretrained model that is adapted, as settings `model` of a run."""
        base = self.project.pretrained
        assert base is not None
        location = f"{self.key_origins.origin(('pretrained',))}: pretrained.sizes"
        return asdict(base.planned(location))

    @cached_property
    def _derived(self) -> dict[str, str]:
        """Base dataset of every dataset that has one, by name."""
        bases = {
            name: self.scale.datasets.get(name, {}).get("base", entry.get("base"))
            for name, entry in self.datasets.items()
        }
        return {name: base for name, base in bases.items() if base is not None}

    def _dataset_chain(self, name: str) -> list[str]:
        """Return the bases of a dataset, first to last, and itself; `corpus` replaces the first."""

        def base(member: str) -> str | None:
            parent = self._derived.get(member)
            return self.dataset_of(parent) if parent in self.datasets else parent

        location = f"{self.folder / 'datasets.yaml'}: datasets"
        return lineage(self.datasets, name, location, "base", base)
