"""Tables and figures of a scale: their resolved configs and input files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.resources import files
from itertools import product

from difftransformer.config.artifacts import ArtifactConfig, Kind, SectionConfig
from difftransformer.config.evaluation import Fact
from difftransformer.config.evaluations import BenchmarkConfig, module_of
from difftransformer.config.overrides import overrides
from difftransformer.config.resolved_artifacts import DEVIATION, ResolvedArtifact, SweepRow
from difftransformer.config.run import PRETRAINED_SEED
from difftransformer.config.scales import sweep_run
from difftransformer.config.timing import TRAINED_SIZES
from difftransformer.errors import lookup
from difftransformer.models.attention.registry import (
    deviation_from_paper,
    has_head_norm,
    variant_location,
)
from difftransformer.planning.artifact_resolver import ArtifactResolver
from difftransformer.planning.checks import check_evaluation, check_suites
from difftransformer.planning.devices import computes_on_gpu
from difftransformer.planning.jobs import Jobs
from difftransformer.planning.rules import ENTRIES
from difftransformer.provenance.fingerprint import code_fingerprint, config_fingerprint


@dataclass(frozen=True, eq=False)
class Artifacts:
    """The tables and figures that can be built at one scale, with their input files."""

    jobs: Jobs

    @cached_property
    def available(self) -> dict[str, ArtifactConfig]:
        """Artifacts that can be built at this scale, by id."""
        swept = set(self.jobs.resolver.scale.sweeps)
        return {
            name: artifact
            for name, artifact in self.jobs.resolver.artifacts.items()
            if (
                name in swept
                or not any(
                    part.typed_options.swept or self._untimed(part) for part in artifact.sections
                )
            )
            and self.unavailable_reason(artifact) is None
        }

    def check(self, name: str) -> None:
        """Check that all names in an artifact exist and that its suites can evaluate its runs.

        Raises:
            ConfigError: The first error, with key, value and the most similar known name.
        """
        location = f"{self._artifact_resolver.location}/{name}.yaml"
        self._artifact_resolver.check(name)
        for index, part in enumerate(self.available[name].sections):
            check_suites(self.jobs.resolver, part, f"{location}: sections[{index}].suites")
        for suite, run in self.evaluations(name):
            lookup(self.jobs.resolver.suites, suite, "suite", location)
            trained = self.jobs.run(run) if self.jobs.trained(run) else None
            check_evaluation(self.jobs.pretrained_runs, suite, run, trained, location)

    @cache  # noqa: B019 - a plan lives as long as the process
    def resolve(self, name: str, kind: Kind) -> ResolvedArtifact:
        """Return the resolved config of a table or figure."""
        parts = self.available[name].sections
        return self._artifact_resolver.resolve(
            name,
            kind,
            scale=self.jobs.scale,
            seeds=self.seeds(name),
            exploratory_seeds=self.jobs.resolver.scale.exploratory_seeds,
            facts={run: self._facts(run, part) for part in parts for run in self._rows(part)},
            sweeps=self._sweep_rows(name),
        )

    def config_file(self, name: str, kind: Kind) -> str:
        """Write the resolved config of a table or figure to a file, and return its path."""
        return self.jobs.write(kind, self.resolve(name, kind))

    def code(self, kind: Kind, name: str) -> str:
        """Return the fingerprint of the code and templates of a table or figure."""
        reports = {module_of(part.evaluation, "report") for part in self.available[name].sections}
        code = code_fingerprint(ENTRIES[kind], tuple(reports))
        return config_fingerprint([code, templates()])

    def seeds(self, name: str) -> list[int]:
        """Return the seeds that an artifact shows.

        A sweep that selects learning rates may have seeds of its own.
        """
        scale = self.jobs.resolver.scale
        sweep = scale.sweeps.get(name)
        if sweep is not None and sweep.seeds is not None:
            return sweep.seeds
        requested = self.jobs.resolver.project.seeds
        if isinstance(requested, list):
            return requested
        return scale.first_seeds(name, requested)

    def exploratory(self) -> list[int]:
        """Return the requested seeds that are exploratory, and thus excluded from tests."""
        seeds = self.jobs.resolver.project.seeds
        exploratory = self.jobs.resolver.scale.exploratory_seeds
        return [seed for seed in seeds if seed in exploratory] if isinstance(seeds, list) else []

    def runs(self, name: str) -> list[str]:
        """Return the trained runs of an artifact: of its rows at all recipes, or of its sweep."""
        swept = [row.run_id for rows in self._sweep_rows(name).values() for row in rows]
        parts = [part for part in self.available[name].sections if part.typed_options.trained]
        row_runs = [run for part in parts for run in (*self._rows(part), *_paired_runs(part))]
        return swept or list(dict.fromkeys(row_runs))

    # --- files behind it ---

    def results(self, name: str, seeds: Sequence[int] | None = None) -> list[str]:
        """Return paths of the training, evaluation and timing results that an artifact reads."""
        layout = self.jobs.layout
        files = [layout.training(run, seed) for run, seed in self._trainings(name, seeds)]
        for suite, run, seed in self._evaluated(name, seeds):
            files.append(layout.evaluation(suite, run, seed))
            judges = self.jobs.judges(suite)
            files += [layout.judgment(judge, suite, run, seed) for judge in judges]
        timings = map(self._timing_of, self.available[name].sections)
        return files + [
            layout.timings(timing) for timing in dict.fromkeys(timings) if timing is not None
        ]

    def histories(self, name: str) -> list[str]:
        """Return the paths of the training history files that a figure reads."""
        return [self.jobs.layout.history(run, seed) for run, seed in self._trainings(name)]

    def table_histories(self, name: str) -> list[str]:
        """Return the paths of the training histories that a table reads; empty for most tables."""
        parts = self.available[name].sections
        return (
            self.histories(name)
            if any(part.typed_options.reads_histories for part in parts)
            else []
        )

    def details(self, name: str) -> list[str]:
        """Return the paths of the folders with items and arrays of the evaluations in a figure."""
        return [self.jobs.layout.details(*evaluation) for evaluation in self._evaluated(name)]

    def answer_folders(self, name: str) -> dict[str, list[str]]:
        """Return the paths of the folders with answers to judge, by kind of evaluation."""
        folders = dict[str, list[str]]()
        for suite, run, seed in self._evaluated(name):
            if self.jobs.judges(suite):
                kind = self.jobs.resolver.suite(suite).kind
                folders.setdefault(kind, []).append(self.jobs.layout.details(suite, run, seed))
        return folders

    def judgment_details(self, name: str) -> list[str]:
        """Return the paths of folders with each judge's judgments, for a table comparing judges."""
        return [
            self.jobs.layout.judgment_details(judge, *evaluation)
            for evaluation in self._evaluated(name)
            for judge in self.jobs.judges(evaluation[0])
            if len(self.jobs.judges(evaluation[0])) > 1
        ]

    def evaluations(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the pairs (suite, run) that an artifact shows, in the order of its rows."""
        for part in self.available[name].sections:
            for run, suite in product(self._measured(name, part), part.suites):
                yield suite, run
            for run, suite in product(_paired_runs(part), part.typed_options.paired_suites):
                yield suite, run

    # --- timings ---

    def timings(self) -> list[str]:
        """Return the names of the evaluations that measure timings at this scale."""
        names = (self._timing_of(part) for part in self._parts())
        return list(dict.fromkeys(name for name in names if name is not None))

    def timing(self, name: str) -> BenchmarkConfig:
        """Return the config of an evaluation's benchmark job, which times models of all artifacts.

        Raises:
            ConfigError: The model of a row is not valid at the sizes of the benchmark.
        """
        config = self.jobs.resolver.timing(name)
        assert config is not None, name
        at_scale_sizes = self._timed(name, trained_sizes=False)
        at_trained_sizes = self._timed(name, trained_sizes=True)
        models = self.jobs.sizes.timed(config, at_scale_sizes, at_trained_sizes)
        return BenchmarkConfig(scale=self.jobs.scale, evaluation=name, config=config, models=models)

    def timing_file(self, name: str) -> str:
        """Write the config of the benchmark job of an evaluation to a file, and return its path."""
        return self.jobs.write("timings", self.timing(name))

    def timing_code(self, name: str) -> str:
        """Return the fingerprint of a benchmark's code, with the attention of all timed models."""
        benchmark, result = self.timing(name), self.jobs.layout.timings(name)
        models = [model for by_shape in benchmark.models.values() for model in by_shape.values()]
        variants = {variant_location(model.attention.variant) for model in models}
        modules = (module_of(name, "settings"), module_of(name, "measure"))
        on_gpu = computes_on_gpu(benchmark.config.device, benchmark.config.backends, result)
        return code_fingerprint(ENTRIES["benchmark"], (*modules, *variants), on_gpu=on_gpu)

    def _parts(self) -> list[SectionConfig]:
        return [part for artifact in self.available.values() for part in artifact.sections]

    def _timed(self, name: str, *, trained_sizes: bool) -> list[str]:
        """Return the runs that a benchmark times."""
        parts = [part for part in self._parts() if self._timing_of(part) == name]
        rows = (
            row.run
            for part in parts
            if (part.evaluation != name) == trained_sizes
            for row in part.rows
        )
        return list(dict.fromkeys(rows))

    def _timing_of(self, part: SectionConfig) -> str | None:
        """Return the evaluation whose timings a section shows, if the scale has timings."""
        name = part.typed_options.timing
        config = None if name is None else self.jobs.resolver.timing(name)
        trained_sizes = part.evaluation != name
        return (
            None
            if config is None or (trained_sizes and TRAINED_SIZES not in config.calls())
            else name
        )

    def _untimed(self, part: SectionConfig) -> bool:
        """Return whether a section needs timings that the scale does not measure."""
        return part.typed_options.timing == part.evaluation and self._timing_of(part) is None

    # --- parts ---

    def unavailable_reason(self, artifact: ArtifactConfig) -> str | None:
        """Return the reason why an artifact cannot be built from the pretrained model, or None."""
        resolver, pretrained_runs, runs = (
            self.jobs.resolver,
            self.jobs.pretrained_runs,
            artifact.runs(),
        )
        if resolver.project.pretrained is None or not set(runs) <= resolver.runs.keys():
            return None  # `check` reports unknown runs
        if all(resolver.runs[run].adapt is None for run in runs):
            return None
        if not_pretrained := [run for run in runs if not pretrained_runs.includes(run)]:
            return f"it also shows {not_pretrained[0]}, which does not start from it"
        suites = dict.fromkeys(suite for part in artifact.sections for suite in part.suites)
        for suite in suites:
            if any(pretrained_runs.incompatibility(suite, run) for run in runs):
                return f"suite {suite} cannot evaluate it"
        if longer := [run for run in runs if run in pretrained_runs.too_long]:
            longest = self.jobs.sizes.run(longer[0])
            needed, available = longest.training.seq_len, longest.model.max_positions
            return f"{longer[0]} reads {needed} positions, and it has {available}"
        return None

    @cached_property
    def _artifact_resolver(self) -> ArtifactResolver:
        resolver = self.jobs.resolver
        return ArtifactResolver(
            artifacts=resolver.artifacts,
            labels={name: entry.label for name, entry in resolver.runs.items()},
            location=str(resolver.folder / "artifacts"),
            pretrained=frozenset(
                name for name, entry in resolver.runs.items() if entry.pretrained is not None
            ),
            judges={suite: self.jobs.judges(suite) for suite in resolver.suites},
            members=resolver.members,
            color=lambda run: resolver.entry(run).color,
            replications=resolver.papers.replications,
            overrides=cache(partial(overrides, resolver)),
        )

    def _facts(self, run: str, part: SectionConfig) -> dict[str, Fact]:
        if not self.jobs.trained(run):
            return {}
        run_config = self.jobs.run(run)
        attention = run_config.model.attention
        facts = part.typed_options.facts(run_config) | {"norm": has_head_norm(attention)}
        if part.typed_options.timing is not None:
            facts["timed"] = self._timing_of(part) is not None
        reason = deviation_from_paper(attention.variant)
        return facts if reason is None else facts | {DEVIATION: reason}

    def _sweep_rows(self, name: str) -> dict[str, list[SweepRow]]:
        sweep = self.jobs.resolver.scale.sweeps.get(name)
        swept: dict[str, list[SweepRow]] = {}
        for run, rates in () if sweep is None else sweep.rates().items():
            configured = self.jobs.run(run).training.lr  # this rate needs no new run
            swept[run] = [
                SweepRow(
                    run=run,
                    run_id=run if rate == configured else sweep_run(run, index),
                    learning_rate=rate,
                    chosen=rate == configured,
                )
                for index, rate in enumerate(rates)
            ]
        return swept

    def _rows(self, part: SectionConfig) -> list[str]:
        """Return the runs of a section's rows, for each recipe of its size grid."""
        members = self.jobs.resolver.members
        return [run for row in part.rows for run in members(row.run, part.size_grid)]

    def _measured(self, name: str, part: SectionConfig) -> list[str]:
        """Return the runs that a section's suites evaluate; for a sweep the runs at each rate."""
        if not part.typed_options.swept:
            return self._rows(part)
        swept = self._sweep_rows(name)
        return [rate.run_id for row in part.rows for rate in swept.get(row.run, [])]

    def _trainings(self, name: str, seeds: Sequence[int] | None = None) -> list[tuple[str, int]]:
        trained = [run for run in self.runs(name) if self.jobs.trained(run)]
        return [(run, seed) for run in trained for seed in seeds or self.seeds(name)]

    def _evaluated(
        self, name: str, seeds: Sequence[int] | None = None
    ) -> list[tuple[str, str, int]]:
        """Return all triples (suite, run, seed) whose evaluations an artifact reads."""
        elsewhere = [PRETRAINED_SEED]  # one result for all seeds
        seeds = seeds or self.seeds(name)
        return [
            (suite, run, seed)
            for suite, run in self.evaluations(name)
            for seed in (seeds if self.jobs.trained(run) else elsewhere)
        ]


def _paired_runs(part: SectionConfig) -> Sequence[str]:
    """Return the runs on another task that are paired with a section's rows."""
    return [row.paired_run for row in part.rows if row.paired_run is not None]


@cache
def templates(folder: str = "templates") -> dict[str, str]:
    """Return the content of the files in a folder of the package `reporting`, by file name."""
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in (files("difftransformer.reporting") / folder).iterdir()
        if entry.is_file()
    }
