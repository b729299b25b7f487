"""What there is to do at one scale: its jobs, its artifacts, and the targets they make up.

The workflow asks a `Plan` and holds no knowledge of its own.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from difftransformer.config.artifact_slices import ReportSlice
from difftransformer.config.artifacts import Kind
from difftransformer.config.papers import ItemStatus, PaperItem, PaperStatus, State
from difftransformer.config.resolve import Catalogue
from difftransformer.config.validation import lookup
from difftransformer.evaluation.endpoints import require_environment
from difftransformer.planning.artifacts import Artifacts, templates
from difftransformer.planning.jobs import ENTRIES, Jobs
from difftransformer.provenance.fingerprint import code_fingerprint, slice_fingerprint
from difftransformer.provenance.tracking import check_uri

HEADLINE = "headline"
_OFFLINE = "The offline judge decides; judge=endpoint asks a language model, as the paper does."


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything that can be built at one scale."""

    catalogue: Catalogue

    @cached_property
    def jobs(self) -> Jobs:
        """Data, training, evaluation and timings."""
        return Jobs(self.catalogue)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Tables and figures."""
        return Artifacts(self.jobs)

    @classmethod
    def load(
        cls, folder: Path, overrides: Mapping[str, Any] | None = None, *, with_files: bool = True
    ) -> "Plan":
        """Read, resolve and check the whole configuration.

        Args:
            folder: Of the configuration.
            overrides: Keys of its config.yaml.
            with_files: Whether the user's files must be there, too: corpora and items. A job
                on another machine need not see them.

        Raises:
            ConfigError: At the first thing that cannot be used, in one line.
        """
        plan = cls(Catalogue.load(folder, overrides))
        plan.check()
        if with_files:
            plan.check_files()
        return plan

    def check(self) -> None:
        """Resolve everything that any target could need."""
        place = self.catalogue.folder / "config.yaml"
        check_uri(self.catalogue.project.tracking.uri, f"{place}: tracking.uri")
        if "endpoint" in self.catalogue.project.judge:
            require_environment(self.catalogue.project.judges.endpoint)
        for name in self.catalogue.suites:
            self.catalogue.suite(name)
        for name in self.artifacts.known:
            self.artifacts.check(name)
        for name in self.groups[HEADLINE]:
            lookup(self.artifacts.known, name, "artifact", f"{place}: headline")
        trained = [name for name in self.catalogue.runs if self.jobs.trained(name)]
        for name in trained:
            self.jobs.run(name)
        for name in self.artifacts.timings():
            self.artifacts.timing(name)

    def check_files(self) -> None:
        """Look for the files that any target could need."""
        for name in self.catalogue.suites:
            self.jobs.benchmark_files(name)
        trained = [name for name in self.catalogue.runs if self.jobs.trained(name)]
        for name in {self.jobs.run(run).dataset for run in trained}:
            self.jobs.corpus_files(name)

    def make_folder(self) -> None:
        """Make the folder of the slices; a results folder that nobody can write shows here.

        Raises:
            OSError: the file system refuses.
        """
        Path(self.jobs.layout.plan).mkdir(parents=True, exist_ok=True)

    # --- targets ---

    @cached_property
    def groups(self) -> dict[str, list[str]]:
        """Artifacts that have a name together: headline, all, sweeps, papers that have any."""
        known = self.artifacts.known
        sweeps = [name for name, artifact in known.items() if artifact.tunes]
        papers = {
            name: [one for one in dict.fromkeys(i.artifact for i in paper.items) if one in known]
            for name, paper in self.catalogue.papers.papers.items()
        }
        return {
            HEADLINE: self.catalogue.project.headline,
            "all": [name for name in known if name not in sweeps],
            "sweeps": sweeps,
            **{name: found for name, found in papers.items() if found},
        }

    def asked(self, targets: Sequence[str]) -> list[str]:
        """Return the artifacts that targets of a command line name, those of a group one by one.

        Without any they are those of a bare call; rules and files but pages are no artifacts.
        """
        known = self.groups
        for name in self.artifacts.known:
            known = known | {name: [name], self.jobs.layout.page(name): [name]}
        names = [name for name in targets if name in known] or [HEADLINE]
        return list(dict.fromkeys(one for name in names for one in known[name]))

    def files(self, artifacts: Sequence[str]) -> list[str]:
        """Return the files that artifacts consist of: tables, figures and a page of each."""
        layout = self.jobs.layout
        pages = [layout.page(name) for name in artifacts]
        return [*self.tables(artifacts, ".html"), *self.figures(artifacts), *pages]

    def tables(self, artifacts: Sequence[str], ending: str = ".json") -> list[str]:
        """Return the tables of artifacts, as data unless another ending is given."""
        return [f"{self.jobs.layout.table(a)}{ending}" for a in self._with("table", artifacts)]

    def figures(self, artifacts: Sequence[str]) -> list[str]:
        """Return the pictures of artifacts."""
        return [f"{self.jobs.layout.figure(a)}.svg" for a in self._with("figure", artifacts)]

    def results(self, artifacts: Sequence[str]) -> list[str]:
        """Return every result file behind artifacts."""
        return list(dict.fromkeys(f for name in artifacts for f in self.artifacts.results(name)))

    def report_slice(self, artifacts: Sequence[str], *, contents: bool = True) -> str:
        """Return the file of the slice of a report on artifacts.

        With ``contents`` it opens with the tables and figures of the papers.
        """
        project = self.catalogue.project
        scale = project.scale
        slice = ReportSlice(
            scale=scale,
            scale_description=self.catalogue.scale.description,
            seeds=sorted({seed for name in artifacts for seed in self.artifacts.seeds(name)}),
            contents=paper_contents(self.artifacts, artifacts) if contents else [],
            tables=[self.artifacts.slice(a, "table") for a in self._with("table", artifacts)],
            figures=[self.artifacts.slice(a, "figure") for a in self._with("figure", artifacts)],
            commands={
                name: f"snakemake {name} --config scale={scale}{_asked_seeds(project.seeds)}"
                for name in artifacts
            },
        )
        return self.jobs.write("report", slice)

    def verdicts_slice(self, artifacts: Sequence[str]) -> str:
        """Return the file of the slice of the verdicts on artifacts."""
        return self.jobs.write("verdicts", self.artifacts.verdicts(artifacts))

    def verdicts_code(self) -> str:
        """Return the fingerprint of what judges."""
        return code_fingerprint(ENTRIES["build_verdicts"])

    def report_code(self) -> str:
        """Return the fingerprint of what writes pages."""
        return slice_fingerprint([code_fingerprint(ENTRIES["build_report"]), templates()])

    # --- rerunning one ---

    def own_runs(self, artifact: str) -> list[str]:
        """Return the runs that exist for an artifact alone; without any, all that it shows."""
        known = lookup(self.artifacts.known, artifact, "artifact", "rerun")
        return known.interventions or self.artifacts.runs(artifact)

    def interventions(self, artifact: str) -> list[str]:
        """Return the trainings that exist for an artifact alone: what rerunning it trains."""
        runs = [run for run in self.own_runs(artifact) if self.jobs.trained(run)]
        seeds = self.artifacts.seeds(artifact)
        return [self.jobs.layout.training(run, seed) for run in runs for seed in seeds]

    def built_users(self, artifact: str) -> list[str]:
        """Return the artifact and every built one that shows any of its own runs."""
        own = set(self.own_runs(artifact))
        return [
            name
            for name in self.artifacts.known
            if name == artifact
            or (
                own & set(self.artifacts.runs(name))
                and any(Path(file).is_file() for file in self.files([name]))
            )
        ]

    def _with(self, kind: Kind, artifacts: Sequence[str]) -> list[str]:
        return [name for name in artifacts if getattr(self.artifacts.known[name], kind)]


def _asked_seeds(asked: Sequence[int] | int | None) -> str:
    """The seeds of a call as it gives them."""
    if asked is None:
        return ""
    if isinstance(asked, int):
        return f" seeds={asked}"
    return f" 'seeds=[{','.join(map(str, asked))}]'"


def paper_contents(artifacts: Artifacts, reported: Collection[str]) -> list[PaperStatus]:
    """Return one line for each table and figure that the papers print, in their order.

    ``reported`` are the artifacts that the report shows, of those that the scale can build.
    """

    def status(item: PaperItem) -> ItemStatus:
        states, words = _become(item, artifacts, reported)
        shown = item.model_dump(include={"item", "shows", "artifact"})
        return ItemStatus(**shown, states=states, words=words)

    papers = artifacts.jobs.catalogue.papers.papers.values()
    return [
        PaperStatus(title=one.title, source=one.source, items=[status(item) for item in one.items])
        for one in papers
    ]


def _become(
    item: PaperItem, artifacts: Artifacts, reported: Collection[str]
) -> tuple[list[State], str]:
    """What has become of one table or figure, and what is missing."""
    catalogue, name = artifacts.jobs.catalogue, item.artifact
    scale = catalogue.project.scale
    if name is None:
        state: State = "nothing to measure" if item.missing is None else "not built yet"
        return [state], f"{item.reason or item.missing}."
    if name not in artifacts.known:
        return ["needs scale"], f"Scale {scale} has no setting for it."
    if name not in reported:
        command = f"snakemake {name} --config scale={scale}"
        return ["not in this report"], f"Build it with {command}."
    stand_ins = catalogue.scale.stand_ins.get(name, {})
    left_out = [catalogue.runs[run].label for run, other in stand_ins.items() if other is None]
    if left_out:
        return ["built here", "needs scale"], f"Without {', '.join(left_out)}."
    if artifacts.answer_folders(name) and "endpoint" not in catalogue.project.judge:
        return ["built here", "needs a judge"], _OFFLINE
    return ["built here"], ""
