"""What tables and figures are made of: their slices, and the files they are read from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import product

from difftransformer.config.artifact_slices import (
    INTERPRETATION,
    ArtifactSlice,
    Declarations,
    Fact,
    SweepRow,
    slice_artifact,
)
from difftransformer.config.artifacts import UNTRAINED, ArtifactConfig, Kind, SectionConfig
from difftransformer.config.scale_runs import sweep_run
from difftransformer.config.throughput import ThroughputSlice
from difftransformer.models.attention.registry import interpretation, variant_location
from difftransformer.planning.decoding import decoding_slice
from difftransformer.planning.hyperparameters import hyperparameters
from difftransformer.planning.runs import RunPlan
from difftransformer.planning.throughput import throughput_slice
from difftransformer.planning.variants import mechanism, variant_facts
from difftransformer.provenance.fingerprint import slice_fingerprint
from difftransformer.reporting.builders import builder_module


@dataclass(frozen=True, eq=False)
class ArtifactPlan(RunPlan):
    """Tables and figures of one scale, over the jobs of `RunPlan`."""

    @property
    def artifacts(self) -> dict[str, ArtifactConfig]:
        """Tables, figures and ablations by id, those that the scale can build."""
        swept = set(self.catalogue.scale.sweeps)
        return {
            name: artifact
            for name, artifact in self.catalogue.artifacts.items()
            if name in swept
            or not any(part.swept or self._untimed(part) for part in artifact.sections)
        }

    def artifact_slice(self, artifact: str, kind: Kind) -> str:
        """Return the file of a table's or a figure's slice."""
        return self._write(kind, self._artifact(artifact, kind))

    def runs(self, artifact: str) -> list[str]:
        """Return the trained runs behind an artifact: rows, their families, or a sweep's runs."""
        swept = [row.run_id for rows in self._sweep_rows(artifact).values() for row in rows]
        parts = [p for p in self.artifacts[artifact].sections if p.measures not in UNTRAINED]
        shown = [run for part in parts for run in (*self._rows(part), *_retrieval(part))]
        return swept or list(dict.fromkeys(shown))

    def results(self, artifact: str) -> list[str]:
        """Return the result files behind a table or figure: trainings, then evaluations."""
        return list(self._results(artifact))

    def histories(self, artifact: str) -> list[str]:
        """Return the curves behind a figure."""
        pairs = self._trainings(artifact)
        return [self.layout.history(run, seed) for run, seed in pairs]

    def details(self, artifact: str) -> list[str]:
        """Return the folders that a figure may read beside the results of its evaluations."""
        return [
            self.layout.details(suite, run, seed)
            for suite, run in self._evaluations(artifact)
            for seed in self.seeds_of(run)
        ]

    def answer_folders(self, artifact: str) -> list[str]:
        """Return the folders of answers behind an artifact that judges read."""
        return [
            self.layout.details(suite, run, seed)
            for suite, run in self._evaluations(artifact)
            for seed in self.seeds_of(run)
            if self.judges(suite)
        ]

    def judgement_details(self, artifact: str) -> list[str]:
        """Return the folders of single judgements behind a table, where judges are compared."""
        return [
            self.layout.judgement(judge, suite, run, seed).removesuffix(".json")
            for suite, run in self._evaluations(artifact)
            for seed in self.seeds_of(run)
            for judge in self.judges(suite)
            if len(self.judges(suite)) > 1
        ]

    def table_histories(self, artifact: str) -> list[str]:
        """Return the curves behind a table: most are made of final numbers alone."""
        parts = self.artifacts[artifact].sections
        return self.histories(artifact) if any(part.reads_histories for part in parts) else []

    def throughput_slice(self) -> str:
        """Return the file of the throughput job's slice."""
        return self._write("throughput", self._throughput())

    def throughput_gpus(self) -> int:
        """Return the GPUs that the throughput job asks for."""
        config = self.catalogue.scale.throughput
        return int(config is not None and config.device == "cuda")

    def decoding_slice(self) -> str:
        """Return the file of the decoding job's slice."""
        slice = decoding_slice(self.catalogue, self._timed_rows("decoding"))
        return self._write("decoding", slice)

    def decoding_gpus(self) -> int:
        """Return the GPUs that the decoding job asks for."""
        config = self.catalogue.scale.decoding
        return int(config is not None and config.device == "cuda")

    def code(self, rule: str, *parts: str) -> str:
        """Return the fingerprint of a rule's code, with the templates that it writes from."""
        code = super().code(rule, *parts)
        return slice_fingerprint([code, _templates()]) if rule.startswith("build_") else code

    @cached_property
    def _declarations(self) -> Declarations:
        return Declarations(
            artifacts=self.catalogue.artifacts,
            claims=self.catalogue.claims.claims,
            paper=self.catalogue.paper.tables,
            labels={name: entry.label for name, entry in self.catalogue.runs.items()},
            place=str(self.catalogue.folder / "artifacts.yaml"),
            pretrained=frozenset(
                name for name, entry in self.catalogue.runs.items() if entry.pretrained is not None
            ),
            judges={suite: self.judges(suite) for suite in self.catalogue.suites},
        )

    def _artifact(self, name: str, kind: Kind) -> ArtifactSlice:
        parts = self.artifacts[name].sections
        return slice_artifact(
            self._declarations,
            name,
            kind,
            scale=self.scale,
            seeds=self._seeds(name),
            facts={run: self._facts(run, part) for part in parts for run in self._rows(part)},
            sweeps=self._sweep_rows(name),
            members=self.catalogue.members,
        )

    def _facts(self, run: str, part: SectionConfig) -> dict[str, Fact]:
        if self.pretrained(run) is not None:
            return {}
        reason = interpretation(self.run(run).model.attention["variant"])
        ours = {} if reason is None else {INTERPRETATION: reason}
        return {**self._measured_facts(run, part), **ours}

    def _measured_facts(self, run: str, part: SectionConfig) -> dict[str, Fact]:
        if part.measures == "hyperparameters":
            return hyperparameters(self.run(run))
        if part.measures == "variants":
            return variant_facts(self.run(run), timed=self._times_variants)
        if part.measures == "context_rms":
            return mechanism(self.run(run).model)
        model = self.run(run).model
        attention = model.attention
        return {
            "d_model": model.d_model,
            "layers": model.num_layers,
            "heads": attention["num_heads"],
            "head_dim": attention["head_dim"],
            "norm": attention.get("norm", False),
        }

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

    def _rows(self, part: SectionConfig) -> list[str]:
        """Runs of a section's rows, each at every setup of the family if it has one."""
        return [run for row in part.rows for run in self.catalogue.members(row.run, part.family)]

    def _trainings(self, artifact: str) -> list[tuple[str, int]]:
        trained = [run for run in self.runs(artifact) if self.pretrained(run) is None]
        return [(run, seed) for run in trained for seed in self._seeds(artifact)]

    def _results(self, artifact: str) -> Iterator[str]:
        for run, seed in self._trainings(artifact):
            yield self.layout.training(run, seed)
        for suite, run in self._evaluations(artifact):
            for seed in self.seeds_of(run):
                yield self.layout.evaluation(suite, run, seed)
                for judge in self.judges(suite):
                    yield self.layout.judgement(judge, suite, run, seed)
        timed = ("throughput", "variants") if self._times_variants else ("throughput",)
        if any(part.measures in timed for part in self.artifacts[artifact].sections):
            yield self.layout.throughput
        if any(part.measures == "decoding" for part in self.artifacts[artifact].sections):
            yield self.layout.decoding

    def _evaluations(self, artifact: str) -> Iterator[tuple[str, str]]:
        """Every (suite, run) that an artifact reads, in the order of its rows."""
        for part in self.artifacts[artifact].sections:
            for run, suite in product(self._rows(part), part.suites):
                yield suite, run
            for run, suite in product(_retrieval(part), part.retrieval_suites):
                yield suite, run

    def _timed_rows(self, measures: str = "throughput") -> list[str]:
        parts = [part for artifact in self.artifacts.values() for part in artifact.sections]
        timed = [row.run for part in parts if part.measures == measures for row in part.rows]
        return list(dict.fromkeys(timed))

    @property
    def _times_variants(self) -> bool:
        """Whether the throughput job times the rows of the table of variants too."""
        config = self.catalogue.scale.throughput
        return config is not None and config.variants is not None

    def _throughput(self) -> ThroughputSlice:
        variants = {row: self.run(row).model for row in self._timed_rows("variants")}
        return throughput_slice(self.catalogue, self._timed_rows(), variants)

    def _untimed(self, part: SectionConfig) -> bool:
        """Whether a section shows timings, of which the scale makes none."""
        scale = self.catalogue.scale
        made = {"throughput": scale.throughput, "decoding": scale.decoding}
        return part.measures in made and made[part.measures] is None

    def _selected(self, rule: str, parts: Sequence[str]) -> Iterator[str]:
        yield from super()._selected(rule, parts)
        timed = {"measure_throughput": "throughput", "measure_decoding": "decoding"}.get(rule)
        if timed is not None:
            rows = self._timed_rows(timed)
            if timed == "throughput" and self._times_variants:
                rows = [*rows, *self._timed_rows("variants")]
            for row in rows:
                yield variant_location(self.catalogue.run(row).model.attention["variant"])
        if rule in ("build_table", "build_figure"):
            artifact = self.artifacts[parts[0]]
            form = artifact.table if rule == "build_table" else artifact.figure
            assert form is not None
            kind: Kind = "table" if rule == "build_table" else "figure"
            yield builder_module(kind, form.builder)


def _retrieval(part: SectionConfig) -> list[str]:
    """Runs of a section's rows on key-value retrieval, those that have one."""
    return [row.retrieval for row in part.rows if row.retrieval is not None]


@cache
def _templates() -> dict[str, str]:
    """Return the templates and styles that tables and pages are written from."""
    folder = files("difftransformer.reporting") / "templates"
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in folder.iterdir()
        if entry.is_file()
    }
