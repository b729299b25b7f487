"""From the files of ``config/`` to the resolved slice that one job gets.

``Catalogue.load`` reads and checks the files; its methods merge base entries, the scale's setup and
an entry's own changes, and validate the outcome. A slice refers to nothing outside itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from difftransformer.config.artifacts import ArtifactConfig, ArtifactsFile, ClaimsFile
from difftransformer.config.data import DatasetConfig
from difftransformer.config.evaluation import BENCHMARK_KINDS, SuiteConfig
from difftransformer.config.families import family_runs, members, setup_of
from difftransformer.config.inheritance import Layers, ancestry, lineage
from difftransformer.config.overrides import load_project
from difftransformer.config.paper_values import PaperFile
from difftransformer.config.papers import PapersFile, check_papers
from difftransformer.config.pretrained import PretrainedModel
from difftransformer.config.project import (
    DatasetsFile,
    EvaluationsFile,
    MatchEntry,
    ProjectConfig,
    RunEntry,
    RunsFile,
    ScaleConfig,
)
from difftransformer.config.run import RunSlice
from difftransformer.config.scale_checks import check_names, check_settings, require_room
from difftransformer.config.scale_runs import scale_runs, sweep_runs
from difftransformer.config.stand_ins import check_stand_ins, stand_in_claim, stand_in_rows
from difftransformer.config.suites.in_context_learning import GENERATED
from difftransformer.config.validation import lookup, validate
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
    papers: PapersFile

    @classmethod
    def load(cls, folder: Path, overrides: Mapping[str, Any] | None = None) -> "Catalogue":
        """Read the configuration folder; ``overrides`` are keys of config.yaml.

        Raises:
            ConfigError: At the first thing that cannot be used, in one line.
        """
        project = load_project(folder, overrides or {})
        scales = {path.stem: path for path in sorted((folder / "scales").glob("*.yaml"))}
        scale_file = lookup(scales, project.scale, "scale", f"{folder / 'config.yaml'}: scale")
        scale: ScaleConfig = validate(ScaleConfig, read_yaml(scale_file), str(scale_file))

        def read(kind: Any, name: str) -> Any:
            return validate(kind, read_yaml(folder / name), str(folder / name))

        runs = dict(read(RunsFile, "runs.yaml").runs)
        runs.update(scale_runs(runs, scale, str(scale_file)))
        artifacts = read(ArtifactsFile, "artifacts.yaml").artifacts
        papers: PapersFile = read(PapersFile, "papers.yaml")
        check_papers(papers, artifacts, str(folder / "papers.yaml"))
        check_stand_ins(scale.stand_ins, artifacts, runs, str(scale_file))
        artifacts = {
            name: stand_in_rows(artifact, scale.stand_ins.get(name, {}))
            for name, artifact in artifacts.items()
        }
        claims = read(ClaimsFile, "claims.yaml").claims
        claims = {name: stand_in_claim(one, scale.stand_ins) for name, one in claims.items()}
        runs |= family_runs(runs, artifacts, scale, str(scale_file), str(folder / "artifacts.yaml"))
        for sweep in scale.sweeps.values():
            runs.update(sweep_runs(runs, sweep, str(scale_file)))
        catalogue = cls(
            folder=folder,
            project=project,
            scale=scale,
            runs=runs,
            datasets=read(DatasetsFile, "datasets.yaml").datasets,
            suites=read(EvaluationsFile, "evaluations.yaml").suites,
            artifacts=artifacts,
            claims=ClaimsFile(claims=claims),
            paper=read(PaperFile, "paper_values.yaml"),
            papers=papers,
        )
        catalogue._check_entries()
        return catalogue

    def _check_entries(self) -> None:
        """Check every entry by itself, those that no run uses and values that another overrides."""
        check_settings(self.scale, self.scale_file, self.runs, str(self.folder / "runs.yaml"))
        check_names(
            self.scale,
            self.scale_file,
            runs=self.runs,
            datasets=self.datasets,
            suites=self.suites,
        )
        if self.project.corpus is not None:
            place = f"{self.folder / 'config.yaml'}: corpus"
            lookup(self.datasets, self.project.corpus, "dataset", place)
        for name in self.datasets:
            self.dataset(name)

    @cached_property
    def scale_file(self) -> str:
        """Path of the scale's file, for errors."""
        return str(self.folder / "scales" / f"{self.project.scale}.yaml")

    def dataset(self, name: str) -> DatasetConfig:
        """Return a dataset with what its base gives and with the scale's changes.

        Raises:
            ConfigError: An unknown name or base, or something that must be as in the base.
        """
        place = f"{self.folder / 'datasets.yaml'}: datasets"
        lookup(self.datasets, name, "dataset", place)
        layers = Layers()
        for member in self._dataset_chain(name):
            for entry, where in (
                (self.datasets[member], f"{place}.{member}"),
                (self.scale.datasets.get(member, {}), f"{self.scale_file}: datasets.{member}"),
            ):
                own = {key: value for key, value in entry.items() if key != "base"}
                if member in self._derived:
                    _require_same_text(own, where)
                if entry is self.datasets[member] and "sources" in own:
                    layers.values.pop("sources", None)  # other text in the base's token ids
                layers.add(own, where)
        checked: DatasetConfig = validate(
            DatasetConfig, layers.values, f"{place}.{name}", layers.origin
        )
        return checked

    def tokenizer_owner(self, dataset: str) -> str:
        """Return the dataset whose tokenizer a dataset uses: the first of its bases, or itself."""
        return self._dataset_chain(dataset)[0]

    def suite(self, name: str) -> Any:
        """Return a suite with the scale's changes and the project's benchmarks."""
        place = f"{self.folder / 'evaluations.yaml'}: suites"
        entry = lookup(self.suites, name, "suite", place)
        layers = Layers().add(entry, f"{place}.{name}")
        layers.add(self.scale.suites.get(name, {}), f"{self.scale_file}: suites.{name}")
        if self._reads_benchmarks(layers.values):
            layers.add({"data": self.project.benchmarks}, "benchmarks")
        if entry.get("kind") == "quantised" and "measured" in layers.values:
            layers.add({"suite": self._repeated(layers.values, f"{place}.{name}")}, "measured")
        return validate(SuiteConfig, layers.values, f"{place}.{name}", layers.origin)

    def _reads_benchmarks(self, suite: Mapping[str, Any]) -> bool:
        """Whether `benchmarks` says where a suite's items come from."""
        if suite.get("kind") == "in_context_learning":
            # Generated items belong to the model's own words, and no others are builtin.
            own = suite.get("data") == GENERATED
            return not own and self.project.benchmarks not in (None, "builtin")
        generated = suite.get("format") == "recall"
        known = suite.get("kind") in BENCHMARK_KINDS
        return self.project.benchmarks is not None and known and not generated

    def _repeated(self, suite: Mapping[str, Any], place: str) -> dict[str, Any]:
        """Return the settings of the suite that another one repeats."""
        name = str(suite["measured"])
        kind = lookup(self.suites, name, "suite", f"{place}.measured").get("kind")
        if kind == "quantised":
            raise ConfigError(f"{place}.measured: '{name}' repeats a suite itself; name that one")
        settings: dict[str, Any] = self.suite(name).model_dump(mode="json")
        return settings

    def pretrained(self, name: str) -> PretrainedModel | None:
        """Return the model from elsewhere that a run is; None for one that is trained here."""
        place = f"{self.folder / 'runs.yaml'}: runs"
        return lookup(self.runs, name, "run", place).pretrained_model()

    def run(self, name: str, setup: str | None = None) -> RunSlice:
        """Return a run as the training job gets it, but for two things.

        ``model.attention`` is not yet checked, and a run with `match` not yet sized.

        Args:
            name: Run.
            setup: Setup to take instead of the run's own.
        """
        chain = self._run_chain(name)
        setup = setup or self.setup(name)
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
        runs = f"{self.folder / 'runs.yaml'}: runs"
        lineage(self.runs, name, runs, "init_from", self.parent, "run")
        if "dataset" not in values:
            raise ConfigError(f"{place}: its setup names no dataset; add `dataset: ...`")
        dataset = self.dataset_of(str(values["dataset"]))
        size = self.dataset(dataset).vocab_size
        model = dict(values.get("model", {}))
        if size is not None:
            model.setdefault("vocab_size", -(-size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE)
            require_room(size, model["vocab_size"], dataset, layers.origin(("model", "vocab_size")))
        raw = {
            **values,
            "scale": self.project.scale,
            "run": name,
            "dataset": dataset,
            "init_from": self.parent(name),
            "model": model,
        }
        checked: RunSlice = validate(RunSlice, raw, place, layers.origin)
        return checked

    def members(self, run: str, family: str | None) -> list[str]:
        """Return the runs of a row at every setup of its family; without one the run itself."""
        if family is None:
            return [run]
        setups = self.scale.families[family]
        return list(members(self.runs, run, setups, f"{self.folder / 'runs.yaml'}: runs"))

    def dataset_of(self, name: str) -> str:
        """Return the dataset that stands in for ``name``: `corpus` replaces text, not tasks.

        A dataset with a base keeps its name: `corpus` takes the place of its base.
        """
        corpus = self.project.corpus
        if corpus is None or name in self._derived or self.dataset(name).generated is not None:
            return name
        return corpus

    def _run_chain(self, name: str) -> list[tuple[str, RunEntry]]:
        place = f"{self.folder / 'runs.yaml'}: runs"
        lookup(self.runs, name, "run", place)
        names = lineage(self.runs, name, place, "base", lambda run: self.runs[run].base)
        return [(member, self.runs[member]) for member in names]

    def setup(self, run: str) -> str | None:
        """Return the setup of a run; it may come from a base."""
        return setup_of(self.runs, run, f"{self.folder / 'runs.yaml'}: runs")

    def match(self, run: str) -> MatchEntry | None:
        """Return what a run is sized after; it may come from a base."""
        chain = self._run_chain(run)
        own = (entry.match for _, entry in reversed(chain) if "match" in entry.model_fields_set)
        return next(own, None)

    def parent(self, run: str) -> str | None:
        """Return the run that a run continues; it may come from a base."""
        chain = self._run_chain(run)
        named = (e.init_from for _, e in reversed(chain) if "init_from" in e.model_fields_set)
        return next(named, None)

    @cached_property
    def _derived(self) -> dict[str, str]:
        """Base of every dataset that has one."""
        bases = {
            name: self.scale.datasets.get(name, {}).get("base", entry.get("base"))
            for name, entry in self.datasets.items()
        }
        return {name: base for name, base in bases.items() if base is not None}

    def _dataset_chain(self, name: str) -> list[str]:
        """Return a dataset's bases from the first on, and itself; `corpus` replaces the first."""

        def base(member: str) -> str | None:
            found = self._derived.get(member)
            return found if found is None or found not in self.datasets else self.dataset_of(found)

        place = f"{self.folder / 'datasets.yaml'}: datasets"
        return lineage(self.datasets, name, place, "base", base)


def _require_same_text(changes: Mapping[str, Any], where: str) -> None:
    """Refuse what would change token ids, or train on what the base holds out."""
    for key in ("tokenizer", "validation_share"):
        if key in changes:
            raise ConfigError(
                f"{where}: {key}: a dataset with a base has the base's, so that token ids and "
                f"held-out documents stay the same; remove it, or change it in the base"
            )
