"""The plan of one scale: its jobs, artifacts and targets. The Snakefile only queries the plan."""

import os
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from difftransformer.config.artifacts import ENDINGS, ArtifactConfig, Kind
from difftransformer.config.evaluations import module_of
from difftransformer.config.overrides import overrides
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.resolved_artifacts import (
    EarlierArtifact,
    ReportConfig,
    RunDisplay,
    with_overrides,
)
from difftransformer.config.scale import MachineConfig
from difftransformer.config.yaml_files import as_settings, read_yaml
from difftransformer.errors import ConfigError, lookup
from difftransformer.evaluation.endpoints import require_environment
from difftransformer.planning.artifacts import Artifacts, templates
from difftransformer.planning.claims import Claims
from difftransformer.planning.contents import lacking, paper_contents
from difftransformer.planning.gpu_memory_budget import require_gpu_memory
from difftransformer.planning.jobs import Jobs
from difftransformer.planning.rules import ENTRIES
from difftransformer.provenance.fingerprint import code_fingerprint, config_fingerprint
from difftransformer.provenance.layout import SUMS, Layout
from difftransformer.provenance.masking import without_folders
from difftransformer.tracking.address import check_uri

DEFAULT_TARGETS = "default_targets"


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of everything that can be built at one scale."""

    resolver: ConfigResolver
    call_settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys of config.yaml that the command line or its config files set."""

    @cached_property
    def jobs(self) -> Jobs:
        """Data, training, evaluation and benchmark jobs of the scale."""
        return Jobs(self.resolver)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Tables and figures of the scale."""
        return Artifacts(self.jobs)

    @cached_property
    def claims(self) -> Claims:
        """Registered claims and the tables that test them."""
        return Claims(self.artifacts)

    @classmethod
    def load(
        cls, folder: Path, overrides: Mapping[str, Any] | None = None, files: Sequence[Path] = ()
    ) -> "Plan":
        """Return the plan of the configured scale after reading and validating all configuration.

        Args:
            folder: Folder of the YAML configuration.
            overrides: Values for keys of config.yaml.
            files: YAML files with keys of config.yaml; ``overrides`` take precedence over them.

        Raises:
            ConfigError: The first error, in one line.
        """
        resolver = ConfigResolver.load(folder, overrides, files)
        keys = dict.fromkeys(chain(*map(read_yaml, files), overrides or {}))
        plan = cls(resolver, {key: resolver.key_origins.values[key] for key in keys})
        plan.check()
        return plan

    def check(self) -> None:
        """Validate everything that any target could need; raise ConfigError at the first error."""
        location = self.resolver.folder / "config.yaml"
        check_uri(self.resolver.project.tracking.uri, f"{location}: tracking.uri")
        if "endpoint" in self.resolver.project.judge:
            require_environment(self.resolver.project.judges.endpoint)
        for name in self.resolver.suites:
            self.resolver.suite(name)
        for name in self.artifacts.available:
            self.artifacts.check(name)
        for name in self.groups[DEFAULT_TARGETS]:
            self.require(name, f"{location}: default_targets")
        for name in self.resolver.runs:
            if name not in self.jobs.pretrained_runs.too_long and self.jobs.trained(name):
                self.jobs.run(name)
        for name in self.artifacts.timings():
            self.artifacts.timing(name)

    @property
    def machine(self) -> MachineConfig:
        """The machine for which the costs of the scale are estimated.

        Raises:
            ConfigError: The scale configures no machine.
        """
        if (machine := self.resolver.scale.machine) is None:
            location = self.resolver.scale_file
            raise ConfigError(f"{location}: no `machine` for estimates: add one as in paper.yaml")
        return machine

    def require_room(self, runs: Iterable[str]) -> None:
        """Check that trainings fit into the memory of the scale's GPU, if the scale names one.

        Raises:
            ConfigError: A training does not fit; the message says which settings to change.
        """
        if (machine := self.resolver.scale.machine) is not None:
            for run in runs:
                require_gpu_memory(self.jobs.run(run), machine, self.resolver.scale_file)

    def trainings(self, artifacts: Sequence[str]) -> dict[str, set[int]]:
        """Return the seeds of each run to train for artifacts, including parent runs."""
        seeds: dict[str, set[int]] = {}
        for artifact in artifacts:
            for run in self.artifacts.runs(artifact):
                name: str | None = run
                while name is not None and self.jobs.trained(name):
                    seeds.setdefault(name, set()).update(self.artifacts.seeds(artifact))
                    name = self.resolver.entry(name).init_from
        return seeds

    def equal_trainings(self, artifacts: Sequence[str]) -> list[list[str]]:
        """Return groups of runs whose trainings are identical except for the name of the run.

        Settings of intermediate checkpoints are not compared, since they do not change a training.
        """
        by_training = dict[str, list[str]]()
        for run in self.trainings(artifacts):
            run_config = self.jobs.run(run)
            training = run_config.training.model_copy(update={"save_checkpoints_at": []})
            alike = run_config.model_copy(update={"run": "", "training": training})
            by_training.setdefault(alike.model_dump_json(), []).append(run)
        return [runs for runs in by_training.values() if len(runs) > 1]

    def require_writable(self) -> None:
        """Check that the results folder is writable, without creating it; raise OSError if not."""
        folder = Path(self.jobs.layout.plan)
        nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        nearest.mkdir(exist_ok=True)  # fails for a file or a broken link
        try:
            TemporaryFile(dir=nearest).close()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(nearest)) from None

    # --- targets ---

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Artifacts by the name of a target that groups them.

        The groups are `default_targets`, `all`, `sweeps`, and one per paper.
        """
        available = self.artifacts.available
        sweeps = [name for name, artifact in available.items() if artifact.tunes]
        papers = {
            name: [
                one for one in dict.fromkeys(i.artifact for i in paper.items) if one in available
            ]
            for name, paper in self.resolver.papers.papers.items()
        }
        return {
            DEFAULT_TARGETS: self.resolver.project.default_targets,
            "all": [name for name in available if name not in sweeps],
            "sweeps": sweeps,
            **{name: artifacts for name, artifacts in papers.items() if artifacts},
        }

    def requested_artifacts(self, targets: Sequence[str]) -> list[str]:
        """Return the artifacts of command line targets, groups expanded; default: default_targets.

        Names of rules and files are ignored.
        """
        artifacts = self.groups | {name: [name] for name in self.artifacts.available}
        names = [name for name in targets if name in artifacts] or [DEFAULT_TARGETS]
        return list(dict.fromkeys(artifact for name in names for artifact in artifacts[name]))

    def files(self, artifacts: Sequence[str]) -> list[str]:
        """Return the paths of all table and figure files of artifacts."""
        tables = (self.tables(artifacts, ending) for ending in ENDINGS["table"])
        figures = (self.figures(artifacts, ending) for ending in (*ENDINGS["figure"], SUMS))
        return [*chain.from_iterable(tables), *chain.from_iterable(figures)]

    def built_for(self, artifacts: Sequence[str]) -> list[str]:
        """Return the paths to build for artifacts: their files, the verdicts and the report."""
        layout = self.jobs.layout
        stem = layout.verdicts.removesuffix(".json")
        verdicts = [f"{stem}{ending}" for ending in (".csv", ".md", ".json")]
        return [*self.files(artifacts), *verdicts, layout.report, layout.report_sums]

    def earlier_artifacts(self, requested: Sequence[str]) -> list[str]:
        """Return the names of completely built artifacts that this call does not request."""
        return [
            name
            for name in self.artifacts.available
            if name not in requested
            and all(Path(file).is_file() for file in (*self.tables([name]), *self.figures([name])))
        ]

    def tables(self, artifacts: Sequence[str], ending: str = ".json") -> list[str]:
        """Return the paths of the table files of artifacts with suffix ``ending``."""
        return [f"{self.jobs.layout.table(a)}{ending}" for a in self._with("table", artifacts)]

    def figures(self, artifacts: Sequence[str], ending: str = ".svg") -> list[str]:
        """Return the paths of the figure files of artifacts with suffix ``ending``."""
        return [f"{self.jobs.layout.figure(a)}{ending}" for a in self._with("figure", artifacts)]

    def results(self, artifacts: Sequence[str]) -> list[str]:
        """Return the paths of all result files that artifacts read."""
        return list(dict.fromkeys(f for name in artifacts for f in self.artifacts.results(name)))

    def histories(self, artifacts: Sequence[str]) -> list[str]:
        """Return the paths of the history files of all trainings that artifacts show."""
        files = (file for name in artifacts for file in self.artifacts.histories(name))
        return list(dict.fromkeys(files))

    def browsed(self, artifacts: Sequence[str]) -> list[str]:
        """Return the paths of folders with the attention maps on artifacts' report pages."""
        sections = {name: self.artifacts.available[name].sections for name in artifacts}
        names = [name for name in artifacts if any(s.typed_options.browsed for s in sections[name])]
        folders = (folder for name in names for folder in self.artifacts.details(name))
        return list(dict.fromkeys(folders))

    def report_config_file(self, artifacts: Sequence[str]) -> str:
        """Write the config of the report on requested and earlier artifacts; return its path."""
        scale, earlier = self.resolver.project.scale, self.earlier_artifacts(artifacts)
        names = self._in_order([*artifacts, *earlier])
        runs = dict.fromkeys(run for name in names for run in self.artifacts.runs(name))
        report_config = ReportConfig(
            scale=scale,
            scale_description=self.resolver.scale.description,
            seeds=sorted({seed for name in artifacts for seed in self.artifacts.seeds(name)}),
            contents=paper_contents(self.artifacts, names),
            tables=[self.artifacts.resolve(a, "table") for a in self._with("table", names)],
            figures=[self.artifacts.resolve(a, "figure") for a in self._with("figure", names)],
            earlier=[self._earlier(name) for name in earlier],
            runs={run: self._about(run) for run in runs},
            papers={name: paper.title for name, paper in self.resolver.papers.papers.items()},
            commands={name: f"snakemake {name} {self._config()}" for name in names},
            command=f"snakemake {' '.join(self._target_names(artifacts))} {self._config()}",
            config_option=self._config(without=("seeds",)),
        )
        return self.jobs.write("report", report_config)

    def verdicts_config_file(self, artifacts: Sequence[str]) -> str:
        """Write the config of the verdicts on requested and earlier artifacts; return its path."""
        from difftransformer.planning.built import seeds_of

        earlier = seeds_of(self, self.claims.answering(self.earlier_artifacts(artifacts)))
        return self.jobs.write("verdicts", self.claims.tested(artifacts, earlier))

    def report_code(self) -> str:
        """Return the fingerprint of the code and the templates that make the report."""
        artifacts = self.artifacts.available.values()
        sections = [section for artifact in artifacts for section in artifact.sections]
        browsed = {module_of(s.evaluation, "report") for s in sections if s.typed_options.browsed}
        code = code_fingerprint(ENTRIES["report"], tuple(sorted(browsed)))
        return config_fingerprint([code, templates("site/assets")])

    def ending(self) -> list[str]:
        """Return the last lines that a build prints: verdict summary and path of the report."""
        from difftransformer.reporting.verdict_job import read_verdicts

        layout = self.jobs.layout
        verdicts, report = Path(layout.verdicts), Path(layout.page("index"))
        lines = read_verdicts(verdicts).summary if verdicts.is_file() else []
        return [*lines, f"report: {report}"] if report.is_file() else lines

    # --- rerunning one ---

    def owned_runs(self, artifact: str) -> list[str]:
        """Return the runs that only this artifact needs, or else all runs that it shows."""
        config = self.require(artifact, "rerun")
        return config.owned_runs or self.artifacts.runs(artifact)

    def owned_trainings(self, artifact: str) -> list[str]:
        """Return the paths of the training results to rebuild when an artifact is rerun."""
        runs = [run for run in self.owned_runs(artifact) if self.jobs.trained(run)]
        seeds = self.artifacts.seeds(artifact)
        return [self.jobs.layout.training(run, seed) for run in runs for seed in seeds]

    def require(self, name: str, location: str) -> ArtifactConfig:
        """Return the config of an artifact that can be built.

        Raises:
            ConfigError: It is unknown or cannot be built; the message begins with ``location``.
        """
        if (reason := self.lacking().get(name)) is not None:
            raise ConfigError(f"{location}: '{name}' cannot be built: {reason}")
        return lookup(self.artifacts.available, name, "artifact", location)

    def lacking(self) -> dict[str, str]:
        """Return the reason why an artifact cannot be built, for each such artifact by name."""
        declared = sorted(self.resolver.artifacts.keys() - self.artifacts.available.keys())
        return {name: lacking(self.artifacts, name) for name in declared}

    def other_scales(self) -> dict[str, str]:
        """Return the names of the other scales by the path of their results folder."""
        layout = self.jobs.layout
        names = (path.stem for path in (self.resolver.folder / "scales").glob("*.yaml"))
        return {Layout(layout.root, name).home: name for name in names if name != layout.scale}

    def _with(self, kind: Kind, artifacts: Sequence[str]) -> list[str]:
        return [name for name in artifacts if getattr(self.artifacts.available[name], kind)]

    def _in_order(self, artifacts: Sequence[str]) -> list[str]:
        """Return artifacts in order: the default targets first, then the order of the papers."""
        grouped = [name for group in self.groups.values() for name in group if name in artifacts]
        return list(dict.fromkeys([*grouped, *artifacts]))

    def _target_names(self, artifacts: Sequence[str]) -> list[str]:
        """Return the name of the group with exactly these artifacts, or else the artifacts."""
        names = (name for name, members in self.groups.items() if set(members) == set(artifacts))
        return next(([name] for name in names), list(artifacts))

    def _config(self, without: Collection[str] = ()) -> str:
        """Return the --config option that repeats this call; paths are cut to their names."""
        settings = {"scale": self.resolver.project.scale} | {
            key: value for key, value in self.call_settings.items() if key not in without
        }
        return f"--config {shlex.join(as_settings(without_folders(settings)))}"

    def _about(self, run: str) -> RunDisplay:
        entry = self.resolver.runs.get(run)
        if entry is None:  # a run of a sweep
            return RunDisplay(label=run)
        label = with_overrides(entry.label, overrides(self.resolver, run))
        return RunDisplay(label=label, base=entry.base, color=entry.color)

    def _earlier(self, name: str) -> EarlierArtifact:
        table, figure = self.tables([name]), self.figures([name])
        return EarlierArtifact(
            artifact=name,
            table=table[0] if table else None,
            figure=figure[0] if figure else None,
            results=[file for file in self.artifacts.results(name) if Path(file).is_file()],
        )
