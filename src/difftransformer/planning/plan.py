"""What there is to do: every job's slice, code fingerprint and inputs, from checked configuration.

The workflow asks a `Plan` and holds no knowledge of its own. Slices go to jobs as files named by
their content, so that a changed setting is a changed parameter of exactly the jobs it concerns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from difftransformer.config.artifact_slices import (
    ArtifactSlice,
    Declarations,
    Fact,
    ReportSlice,
    SweepRow,
    check_artifact,
    slice_artifact,
)
from difftransformer.config.artifacts import Kind
from difftransformer.config.evaluation import EvaluationSlice, suite_module
from difftransformer.config.resolve import Catalogue, sweep_run
from difftransformer.config.run import DatasetSlice, RunSlice
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError
from difftransformer.models.attention.registry import configure, variant_location
from difftransformer.planning.layout import Layout
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.fingerprint import code_fingerprint, slice_fingerprint
from difftransformer.reporting.builders import builder_module

ENTRIES = {
    "train_tokenizer": "difftransformer.data.tokenizer",
    "tokenise": "difftransformer.data.tokenise",
    "count_ngrams": "difftransformer.data.ngrams",
    "pretrain": "difftransformer.training.pretrain",
    "evaluate": "difftransformer.evaluation.evaluate",
    "build_table": "difftransformer.reporting.table_job",
    "build_figure": "difftransformer.reporting.figure_job",
    "build_report": "difftransformer.reporting.report_job",
}
"""Module whose import closure is the code of a rule."""


@dataclass(frozen=True, eq=False)
class Plan:
    """All jobs of one scale."""

    catalogue: Catalogue

    @classmethod
    def load(cls, folder: Path, overrides: Mapping[str, Any] | None = None) -> "Plan":
        """Read, resolve and check the whole configuration.

        Raises:
            ConfigError: At the first thing that cannot be used, in one line.
        """
        plan = cls(Catalogue.load(folder, overrides))
        plan.check()
        return plan

    def check(self) -> None:
        """Resolve everything that any target could need."""
        for name in self.artifacts:
            self._check_artifact(name)
        for name in [*self.headline, *self.reported]:
            lookup(self.artifacts, name, "artifact", f"{self._config_file}: headline")
        for name in self.catalogue.runs:
            self.run(name)
        for name in self.catalogue.suites:
            self.catalogue.suite(name)
        for name in {self.run(run).dataset for run in self.catalogue.runs}:
            self.corpus_files(name)

    # --- what there is ---

    @cached_property
    def layout(self) -> Layout:
        """Paths."""
        return Layout(self.catalogue.project.results, self.scale)

    @property
    def root(self) -> str:
        """Folder of everything that is built."""
        return self.catalogue.project.results

    @property
    def scale(self) -> str:
        """Name of the scale."""
        return self.catalogue.project.scale

    @property
    def seeds(self) -> list[int]:
        """Seeds of every run."""
        return self.catalogue.project.seeds

    @property
    def artifacts(self) -> dict[str, Any]:
        """Tables, figures and ablations by id, those that the scale can build."""
        swept = set(self.catalogue.scale.sweeps)
        return {
            name: artifact
            for name, artifact in self.catalogue.artifacts.items()
            if name in swept or all(part.metric is None for part in artifact.sections)
        }

    @property
    def headline(self) -> list[str]:
        """Artifacts of a bare call."""
        return self.catalogue.project.headline

    @property
    def reported(self) -> list[str]:
        """Artifacts the report shows."""
        named = self.catalogue.project.report
        if named == "headline":
            return self.headline
        if named == "all":
            return list(self.artifacts)
        return [named] if isinstance(named, str) else named

    # --- what a job gets ---

    @cache  # noqa: B019 - a plan lives as long as the process
    def run(self, name: str) -> RunSlice:
        """Return a run with its attention checked and its head counts filled in."""
        slice = self.catalogue.run(name)
        try:
            attention = configure(slice.model.attention, slice.model.d_model)
        except ConfigError as error:
            raise ConfigError(
                f"{self.catalogue.folder / 'runs.yaml'}: runs.{name}: {error}"
            ) from None
        resolved = slice.model.model_copy(update={"attention": attention.model_dump(mode="json")})
        slice = slice.model_copy(update={"model": resolved})
        self._check_budget(slice)
        return slice

    def run_slice(self, run: str) -> str:
        """Return the file of a training job's slice."""
        return self._write("run", self.run(run))

    def dataset_slice(self, dataset: str) -> str:
        """Return the file of a data job's slice."""
        config = self.catalogue.dataset(dataset)
        return self._write(
            "dataset", DatasetSlice(scale=self.scale, dataset=dataset, config=config)
        )

    def evaluation_slice(self, suite: str, run: str) -> str:
        """Return the file of an evaluation's slice."""
        config = self.catalogue.suite(suite)
        slice = EvaluationSlice(scale=self.scale, run=run, suite=suite, config=config)
        return self._write("evaluation", slice)

    def suite_slice(self, suite: str) -> str:
        """Return the file of a suite's settings, for the jobs that prepare it."""
        return self._write("suite", self.catalogue.suite(suite))

    def artifact_slice(self, artifact: str, kind: Kind) -> str:
        """Return the file of a table's or a figure's slice."""
        return self._write(kind, self._artifact(artifact, kind))

    def report_slice(self) -> str:
        """Return the file of the report's slice."""
        slice = ReportSlice(
            scale=self.scale,
            scale_description=self.catalogue.scale.description,
            seeds=self.seeds,
            tables=[self._artifact(name, "table") for name in self._with("table")],
            figures=[self._artifact(name, "figure") for name in self._with("figure")],
            commands={
                name: f"snakemake {name} --config scale={self.scale} seeds={len(self.seeds)}"
                for name in self.reported
            },
        )
        return self._write("report", slice)

    def code(self, rule: str, *parts: str) -> str:
        """Return the fingerprint of a rule's code.

        Args:
            rule: Name of the rule.
            *parts: What its code is selected by: a run, a suite and a run, or an artifact.
        """
        return code_fingerprint(ENTRIES[rule], tuple(self._selected(rule, parts)))

    def gpus(self, run: str) -> int:
        """Return how many GPUs a run's jobs ask the scheduler for."""
        return int(self.run(run).training.device == "cuda")

    # --- what a job reads ---

    def corpus_files(self, dataset: str) -> list[str]:
        """Return the files of a dataset, so that a changed corpus is tokenised again."""
        from difftransformer.data.sources import corpus_files

        return [str(path) for path in corpus_files(self.catalogue.dataset(dataset))]

    def tokenizer_file(self, dataset: str) -> list[str]:
        """Return the tokenizer of a dataset; generated rows have none."""
        if self.catalogue.dataset(dataset).tokenizer.kind == "none":
            return []
        return [self.layout.tokenizer(dataset)]

    def manifest(self, run: str) -> str:
        """Return the manifest of the data that a run trains on."""
        return self.layout.manifest(self.run(run).dataset)

    def ngrams_file(self, suite: str, run: str) -> list[str]:
        """Return the frequent n-grams that a suite needs, if it needs them."""
        if self.catalogue.suite(suite).kind != "validation_slices":
            return []
        return [self.layout.ngrams(self.run(run).dataset, suite)]

    def results(self, artifact: str) -> list[str]:
        """Return the result files behind a table or figure: trainings, then evaluations."""
        return list(self._results(artifact))

    def histories(self, artifact: str) -> list[str]:
        """Return the curves behind a figure."""
        pairs = self._trainings(artifact)
        return [self.layout.history(run, seed) for run, seed in pairs]

    # --- what a target means ---

    def targets(self, artifacts: Sequence[str]) -> list[str]:
        """Return the files that artifacts consist of."""
        tables = [f"{self.layout.table(a)}.html" for a in artifacts if self.artifacts[a].table]
        figures = [f"{self.layout.figure(a)}.svg" for a in artifacts if self.artifacts[a].figure]
        return tables + figures

    def report_tables(self) -> list[str]:
        """Return the tables, as data, that the report shows."""
        return [f"{self.layout.table(name)}.json" for name in self._with("table")]

    def report_figures(self) -> list[str]:
        """Return the pictures that the report shows."""
        return [f"{self.layout.figure(name)}.svg" for name in self._with("figure")]

    def report_results(self) -> list[str]:
        """Return every result file behind the report."""
        return list(dict.fromkeys(file for name in self.reported for file in self.results(name)))

    def interventions(self, artifact: str) -> list[str]:
        """Return the trainings that exist for an artifact alone: what rerunning it trains."""
        known = lookup(self.artifacts, artifact, "artifact", "rerun")
        runs = known.interventions or known.runs()
        return [self.layout.training(run, seed) for run in runs for seed in self.seeds]

    # --- parts ---

    @property
    def _config_file(self) -> Path:
        return self.catalogue.folder / "config.yaml"

    @cached_property
    def _declarations(self) -> Declarations:
        return Declarations(
            artifacts=self.catalogue.artifacts,
            claims=self.catalogue.claims.claims,
            paper=self.catalogue.paper.tables,
            labels={name: entry.label for name, entry in self.catalogue.runs.items()},
            place=str(self.catalogue.folder / "artifacts.yaml"),
        )

    def _artifact(self, name: str, kind: Kind) -> ArtifactSlice:
        runs = self.artifacts[name].runs()
        return slice_artifact(
            self._declarations,
            name,
            kind,
            scale=self.scale,
            seeds=self._seeds(name),
            facts={run: self._facts(run) for run in runs},
            sweeps=self._sweep_rows(name),
        )

    def _facts(self, run: str) -> dict[str, Fact]:
        attention = self.run(run).model.attention
        return {
            "heads": attention["num_heads"],
            "head_dim": attention["head_dim"],
            "norm": attention["norm"],
        }

    def _with(self, kind: Literal["table", "figure"]) -> list[str]:
        return [name for name in self.reported if getattr(self.artifacts[name], kind)]

    def _seeds(self, artifact: str) -> list[int]:
        sweep = self.catalogue.scale.sweeps.get(artifact)
        return sweep.seeds if sweep else self.seeds

    def _sweep_rows(self, artifact: str) -> dict[str, list[SweepRow]]:
        sweep = self.catalogue.scale.sweeps.get(artifact)
        if sweep is None:
            return {}
        return {
            run: [
                SweepRow(
                    run=run,
                    run_id=sweep_run(run, index),
                    learning_rate=rate,
                    chosen=rate == self.run(run).training.lr,
                )
                for index, rate in enumerate(rates)
            ]
            for run, rates in sweep.rates().items()
        }

    def _trainings(self, artifact: str) -> list[tuple[str, int]]:
        rows = self._sweep_rows(artifact)
        runs = [row.run_id for swept in rows.values() for row in swept]
        runs = runs or self.artifacts[artifact].runs()
        return [(run, seed) for run in runs for seed in self._seeds(artifact)]

    def _results(self, artifact: str) -> Iterator[str]:
        for run, seed in self._trainings(artifact):
            yield self.layout.training(run, seed)
        for suite, run in self.artifacts[artifact].evaluations():
            for seed in self._seeds(artifact):
                yield self.layout.evaluation(suite, run, seed)

    def _selected(self, rule: str, parts: Sequence[str]) -> Iterator[str]:
        match rule:
            case "pretrain":
                yield variant_location(self.run(parts[0]).model.attention["variant"])
            case "evaluate":
                yield suite_module(self.catalogue.suite(parts[0]).kind)
                yield variant_location(self.run(parts[1]).model.attention["variant"])
            case "build_table":
                yield builder_module("table", self.artifacts[parts[0]].table.builder)
            case "build_figure":
                yield builder_module("figure", self.artifacts[parts[0]].figure.builder)

    def _check_artifact(self, name: str) -> None:
        check_artifact(self._declarations, name)
        artifact = self.artifacts[name]
        for suite, _ in artifact.evaluations():
            place = f"{self._declarations.place}: artifacts.{name}"
            lookup(self.catalogue.suites, suite, "suite", place)
        for kind in ("table", "figure"):
            form = getattr(artifact, kind)
            if form is not None:
                builder_module(kind, form.builder)

    def _check_budget(self, slice: RunSlice) -> None:
        training, tokens = slice.training, self.catalogue.dataset(slice.dataset).tokens
        batch = training.batch_size * (training.seq_len + 1)
        if tokens is not None and tokens < batch:
            raise ConfigError(
                f"{self.catalogue.folder / 'datasets.yaml'}: datasets.{slice.dataset}.tokens: "
                f"{tokens} is less than one batch of {batch} tokens (run {slice.run})"
            )
        if training.seq_len > slice.model.max_positions:
            raise ConfigError(
                f"{self.catalogue.scale_file}: run {slice.run}: seq_len {training.seq_len} is "
                f"longer than max_positions {slice.model.max_positions}"
            )

    def _write(self, kind: str, slice: BaseModel) -> str:
        """Write a slice under a name made of its content; what is there already is the same."""
        path = Path(f"{self.layout.plan}/{kind}-{slice_fingerprint(slice)[:16]}.json")
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, slice.model_dump_json(indent=2) + "\n")
        return str(path)
