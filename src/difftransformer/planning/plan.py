"""What there is to do: tables, figures, ablations and the report, over the files of `ArtifactPlan`.

The workflow asks a `Plan` and holds no knowledge of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from difftransformer.config.artifact_slices import (
    ReportSlice,
    check_artifact,
)
from difftransformer.config.evaluation import PRETRAINED_KINDS
from difftransformer.config.resolve import Catalogue
from difftransformer.config.validation import lookup
from difftransformer.errors import ConfigError
from difftransformer.evaluation.judges.endpoint import require_environment
from difftransformer.evaluation.pretrained_folder import model_files
from difftransformer.planning.artifacts import ArtifactPlan
from difftransformer.planning.contents import paper_contents
from difftransformer.planning.decoding import decoding_slice
from difftransformer.provenance.tracking import check_uri
from difftransformer.reporting.builders import builder_module


@dataclass(frozen=True, eq=False)
class Plan(ArtifactPlan):
    """All jobs of one scale, and the targets they make up."""

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
        check_uri(self.catalogue.project.tracking.uri, f"{self._config_file}: tracking.uri")
        if "endpoint" in self.catalogue.project.judge:
            require_environment(self.catalogue.project.judges.endpoint)
        for name in self.artifacts:
            self._check_artifact(name)
        for name in self.headline:
            lookup(self.artifacts, name, "artifact", f"{self._config_file}: headline")
        for name in self.reported:
            known = {**self.groups, **self.artifacts}
            lookup(known, name, "artifact", f"{self._config_file}: report")
        trained = [name for name in self.catalogue.runs if self.pretrained(name) is None]
        for name in trained:
            self.run(name)
        if self._timed_rows():
            self._throughput()
        if self._timed_rows("decoding"):
            decoding_slice(self.catalogue, self._timed_rows("decoding"))
        for name in self.catalogue.suites:
            self.benchmark_files(name)
        for artifact in self.artifacts:
            for suite, run in self._evaluations(artifact):
                self._check_evaluation(suite, run)
        for name in {self.run(run).dataset for run in trained}:
            self.corpus_files(name)

    def make_folder(self) -> None:
        """Make the folder of the slices; a results folder that nobody can write shows here.

        Raises:
            OSError: the file system refuses.
        """
        Path(self.layout.plan).mkdir(parents=True, exist_ok=True)

    @property
    def headline(self) -> list[str]:
        """Artifacts of a bare call."""
        return self.catalogue.project.headline

    @property
    def reported(self) -> list[str]:
        """Artifacts the report shows, those of a group one by one."""
        named = self.catalogue.project.report
        names = named.split() if isinstance(named, str) else named
        return list(dict.fromkeys(one for name in names for one in self.groups.get(name, [name])))

    @property
    def groups(self) -> dict[str, list[str]]:
        """Artifacts that have a name together: headline, all, sweeps, and each paper."""
        sweeps = [name for name, artifact in self.artifacts.items() if artifact.tunes]
        shown = [name for name in self.artifacts if name not in sweeps]
        papers = {
            name: list(dict.fromkeys(item.artifact for item in paper.items if item.artifact))
            for name, paper in self.catalogue.papers.papers.items()
        }
        return {"headline": self.headline, "all": shown, "sweeps": sweeps, **papers}

    def report_slice(self) -> str:
        """Return the file of the report's slice."""
        slice = ReportSlice(
            scale=self.scale,
            scale_description=self.catalogue.scale.description,
            seeds=self.seeds,
            contents=paper_contents(self.catalogue, self.artifacts, self.reported),
            tables=[self._artifact(name, "table") for name in self._with("table")],
            figures=[self._artifact(name, "figure") for name in self._with("figure")],
            commands={
                name: f"snakemake {name} --config scale={self.scale} seeds={len(self.seeds)}"
                for name in self.reported
            },
        )
        return self._write("report", slice)

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

    def own_runs(self, artifact: str) -> list[str]:
        """Return the runs that exist for an artifact alone; without any, all that it shows."""
        known = lookup(self.artifacts, artifact, "artifact", "rerun")
        return known.interventions or self.runs(artifact)

    def interventions(self, artifact: str) -> list[str]:
        """Return the trainings that exist for an artifact alone: what rerunning it trains."""
        runs = [run for run in self.own_runs(artifact) if self.pretrained(run) is None]
        seeds = self._seeds(artifact)
        return [self.layout.training(run, seed) for run in runs for seed in seeds]

    def built_users(self, artifact: str) -> list[str]:
        """Return the artifact and every built one that shows any of its own runs."""
        own = set(self.own_runs(artifact))
        return [
            name
            for name in self.artifacts
            if name == artifact
            or (own & set(self.runs(name)) and any(Path(f).is_file() for f in self.targets([name])))
        ]

    @property
    def _config_file(self) -> Path:
        return self.catalogue.folder / "config.yaml"

    def _with(self, kind: Literal["table", "figure"]) -> list[str]:
        return [name for name in self.reported if getattr(self.artifacts[name], kind)]

    def _check_artifact(self, name: str) -> None:
        check_artifact(self._declarations, name)
        artifact = self.artifacts[name]
        place = f"{self._declarations.place}: artifacts.{name}"
        for suite, run in self._evaluations(name):
            lookup(self.catalogue.suites, suite, "suite", place)
            self._check_row(suite, run, place)
        if artifact.table is not None:
            builder_module("table", artifact.table.builder)
        if artifact.figure is not None:
            builder_module("figure", artifact.figure.builder)

    def _check_row(self, suite: str, run: str, place: str) -> None:
        """Check that a row of a model from elsewhere can be had, and is asked what it can do."""
        known = self.pretrained(run)
        if known is None:
            return
        if self.catalogue.suite(suite).kind not in PRETRAINED_KINDS:
            raise ConfigError(
                f"{place}: row '{run}' is a model from elsewhere, which suite '{suite}' cannot "
                f"measure; kinds that can: {', '.join(sorted(PRETRAINED_KINDS))}"
            )
        model_files(known)
