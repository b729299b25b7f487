"""Data, training, evaluation and timings: every job's slice, code fingerprint and inputs.

Slices go to jobs as files named by their content, so that a changed setting is a changed parameter
of exactly the jobs it concerns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from pydantic import BaseModel

from difftransformer.config.judges import JudgementSlice, JudgeName, judge_module
from difftransformer.config.measurement import Suite
from difftransformer.config.measurements import EvaluationSlice, module_of
from difftransformer.config.resolve import Catalogue
from difftransformer.config.run import (
    PRETRAINED_SEED,
    DatasetSlice,
    PretrainedModel,
    RunSlice,
    require_same_model,
    same_token_ids,
)
from difftransformer.config.timing import TimingSlice
from difftransformer.errors import ConfigError
from difftransformer.evaluation.identity import model_files
from difftransformer.evaluation.item_files import MissingItemsError
from difftransformer.models.attention.registry import variant_location
from difftransformer.planning.layout import Layout
from difftransformer.planning.sizes import Sizes
from difftransformer.provenance.atomic import write_text
from difftransformer.provenance.fingerprint import code_fingerprint, slice_fingerprint
from difftransformer.training.methods import method_module

ENTRIES = {
    "train_tokenizer": "difftransformer.data.tokenizer",
    "tokenise": "difftransformer.data.tokenise",
    "count_ngrams": "difftransformer.data.ngrams",
    "pretrain": "difftransformer.training.pretrain",
    "evaluate": "difftransformer.evaluation.evaluate",
    "measure_timings": "difftransformer.evaluation.timing",
    "build_table": "difftransformer.reporting.table_job",
    "build_figure": "difftransformer.reporting.figure_job",
    "build_page": "difftransformer.reporting.report_job",
    "build_report": "difftransformer.reporting.report_job",
}
"""Module whose import closure is the code of a rule; a measurement's own modules join it, and
answers are judged by one of these alone."""

TOKENS_PER_WORKER = 10_000_000
"""Below this a second process costs more than it saves: about ten seconds of tokenising."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """Data, training and evaluation jobs of one scale."""

    catalogue: Catalogue

    # --- what there is ---

    @cached_property
    def layout(self) -> Layout:
        """Paths."""
        return Layout(self.catalogue.project.results, self.scale)

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of all runs, and what those with `match` were given."""
        return Sizes(self.catalogue)

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

    def pretrained(self, run: str) -> PretrainedModel | None:
        """Return the model from elsewhere that a run is; None for one that is trained here."""
        return self.catalogue.pretrained(run)

    def seeds_of(self, run: str) -> list[int]:
        """Return the seeds of a run; a model from elsewhere has one result for all of them."""
        return self.seeds if self.pretrained(run) is None else [PRETRAINED_SEED]

    # --- what a job gets ---

    @cache  # noqa: B019 - a plan lives as long as the process
    def run(self, name: str) -> RunSlice:
        """Return a run with its attention checked and all sizes filled in."""
        slice = self.sizes.run(name)
        self._check_training(slice)
        if slice.init_from is not None:
            self._check_extension(slice, self.run(slice.init_from))
        return slice

    def run_slice(self, run: str) -> str:
        """Return the file of a training job's slice."""
        return self.write("run", self.run(run))

    def dataset_slice(self, dataset: str) -> str:
        """Return the file of a data job's slice."""
        config = self.catalogue.dataset(dataset)
        return self.write("dataset", DatasetSlice(scale=self.scale, dataset=dataset, config=config))

    @cache  # noqa: B019 - a plan lives as long as the process
    def suite(self, name: str) -> Suite:
        """Return a suite, typed by its measurement."""
        return self.catalogue.suite(name)

    def evaluation_slice(self, suite: str, run: str) -> str:
        """Return the file of an evaluation's slice."""
        model, asked = self.pretrained(run), self.suite(suite)
        slice = EvaluationSlice(
            scale=self.scale, run=run, suite=suite, config=asked, pretrained=model
        )
        return self.write("evaluation", slice)

    def judges(self, suite: str) -> list[JudgeName]:
        """Return who judges what a suite leaves; most suites leave nothing to judge."""
        return self.catalogue.project.judge if self.suite(suite).judged else []

    def judgement_slice(self, judge: str, suite: str, run: str) -> str:
        """Return the file of a judging job's slice."""
        kind, config = self.suite(suite).kind, getattr(self.catalogue.project.judges, judge)
        slice = JudgementSlice(scale=self.scale, run=run, suite=suite, kind=kind, judge=config)
        return self.write("judgement", slice)

    def ngrams_slice(self, suite: str) -> str:
        """Return the file that says which n-grams are too frequent for a suite."""
        ngrams = self.suite(suite).asked.ngrams
        assert ngrams is not None, suite
        return self.write("ngrams", ngrams)

    def timing_slice(self, name: str, rows: Sequence[str], own: Sequence[str]) -> TimingSlice:
        """Return what a job of timings gets.

        Args:
            name: Measurement that is timed.
            rows: Rows at the sizes of the scale.
            own: Rows with the sizes of their runs.

        Raises:
            ConfigError: Sizes that the model of a row cannot have.
        """
        config = self.catalogue.timing(name)
        assert config is not None, name
        models = config.models(rows, own, self.sizes)
        return TimingSlice(scale=self.scale, measurement=name, config=config, models=models)

    def timing_gpus(self, name: str) -> int:
        """Return the GPUs that a job of timings asks for."""
        config = self.catalogue.timing(name)
        return int(config is not None and config.device == "cuda")

    def code(self, rule: str, *parts: str) -> str:
        """Return the fingerprint of a rule's code.

        Args:
            rule: Name of the rule.
            *parts: What its code is selected by: a run, a suite and a run, or a judge and a suite.
        """
        if rule == "judge_answers":
            kind = self.suite(parts[1]).kind
            return code_fingerprint(module_of(kind, "judge"), (judge_module(kind, parts[0]),))
        return code_fingerprint(ENTRIES[rule], tuple(self._selected(rule, parts)))

    def gpus(self, run: str, suite: str | None = None) -> int:
        """Return the GPUs that a run's jobs ask for: one if its suite or training needs CUDA."""
        if suite is not None and self.suite(suite).device == "cuda":
            return 1
        return int(self.pretrained(run) is None and self.run(run).training.device == "cuda")

    def workers(self, dataset: str, cores: int) -> int:
        """Return how many processes tokenise a dataset: a small one must not wait for all cores."""
        tokens = self.catalogue.dataset(dataset).tokens
        return cores if tokens is None else max(1, min(cores, tokens // TOKENS_PER_WORKER))

    # --- what a job reads ---

    def corpus_files(self, dataset: str) -> list[str]:
        """Return the files of a dataset, so that a changed corpus is tokenised again."""
        from difftransformer.data.sources import corpus_files

        return [str(path) for path in corpus_files(self.catalogue.dataset(dataset))]

    def base_tokenizer(self, dataset: str) -> list[str]:
        """Return the tokenizer that a dataset takes over from its first base, if it has one."""
        owner = self.catalogue.tokenizer_owner(dataset)
        return [] if owner == dataset else self.tokenizer_file(owner)

    def tokenizer_file(self, dataset: str) -> list[str]:
        """Return the tokenizer of a dataset; generated rows have none."""
        generated = self.catalogue.dataset(dataset).tokenizer.kind == "none"
        return [] if generated else [self.layout.tokenizer(dataset)]

    def manifest(self, run: str) -> list[str]:
        """Return the manifest of the data that a run trains on, if it is trained here."""
        trained = self.pretrained(run) is None
        return [self.layout.manifest(self.run(run).dataset)] if trained else []

    def training_file(self, run: str, seed: int) -> list[str]:
        """Return the result of the training behind a model, if it is trained here."""
        return [] if self.pretrained(run) is not None else [self.layout.training(run, seed)]

    def weights(self, run: str, seed: int) -> list[str]:
        """Return the files of a model; one on the hub has none here."""
        known = self.pretrained(run)
        if known is None:
            return [self.layout.weights(run, seed)]
        return [str(path) for path in model_files(known)]

    def benchmark_files(self, suite: str) -> list[str]:
        """Return the items that a suite asks, those that lie in files.

        A file that is not there is named all the same: who asks for the suite hears of the missing
        input before any job starts, and nobody else does.
        """
        try:
            return [str(path) for path in self.suite(suite).asked.files()]
        except MissingItemsError as missing:
            return [str(missing.path)]

    def parent_result(self, run: str, seed: int) -> list[str]:
        """Return the result of the training that a run continues, if it continues one."""
        parent = self.catalogue.parent(run)
        return [] if parent is None else [self.layout.training(parent, seed)]

    def parent_weights(self, run: str, seed: int) -> list[str]:
        """Return the weights that a run starts from, if it continues one."""
        parent = self.catalogue.parent(run)
        return [] if parent is None else [self.layout.weights(parent, seed)]

    def ngrams_file(self, suite: str, run: str) -> list[str]:
        """Return the frequent n-grams that a suite needs, if it needs them."""
        asked = self.suite(suite)
        if asked.asked.ngrams is None:
            return []
        owner = suite if asked.repeats is None else getattr(asked, asked.repeats)
        return [self.layout.ngrams(self.run(run).dataset, owner)]

    # --- parts ---

    def check_evaluation(self, suite: str, run: str, place: str) -> None:
        """Check that a suite can be asked of a run, as far as settings alone show it.

        Raises:
            ConfigError: What does not fit the run's model or data, or a model from elsewhere.
        """
        asked, known = self.suite(suite), self.pretrained(run)
        if known is not None:
            if not asked.measures_pretrained:
                raise ConfigError(
                    f"{place}: row '{run}' is a model from elsewhere, which suite '{suite}' "
                    f"(measurement {asked.kind}) cannot measure"
                )
            model_files(known)
            return
        slice = self.run(run)
        rows = self.catalogue.dataset(slice.dataset).generated
        misfit = asked.asked.misfit(slice.model.max_positions, rows)
        if misfit is not None:
            raise ConfigError(
                f"{self.catalogue.folder / 'evaluations.yaml'}: suites.{suite} on run {run} at "
                f"scale {self.scale}: {misfit}"
            )

    def _check_extension(self, child: RunSlice, parent: RunSlice) -> None:
        """Check that the child's model and token ids are its parent's."""
        place = f"{self.catalogue.folder / 'runs.yaml'}: runs.{child.run}.init_from"
        require_same_model(child.model, parent.model, place, parent.run)
        owner = self.catalogue.tokenizer_owner(parent.dataset)
        ours, theirs = (self.catalogue.dataset(one.dataset) for one in (child, parent))
        shared = self.catalogue.tokenizer_owner(child.dataset) == owner and ours.generated is None
        if not shared and not same_token_ids(ours, theirs):
            raise ConfigError(
                f"{place}: dataset {child.dataset} has other token ids than {parent.dataset} of "
                f"run {parent.run}: give it `base: {owner}`, or use a dataset that has it as base"
            )

    def _selected(self, rule: str, parts: Sequence[str]) -> Iterator[str]:
        match rule:
            case "pretrain":
                run = self.run(parts[0])
                yield variant_location(run.model.attention["variant"])
                yield method_module(run.training.method)
            case "evaluate":
                suite = self.suite(parts[0])
                for kind in sorted({suite.kind, suite.asked.kind}):
                    yield from (module_of(kind, "settings"), module_of(kind, "measure"))
                if self.pretrained(parts[1]) is None:
                    yield variant_location(self.run(parts[1]).model.attention["variant"])

    def _check_training(self, slice: RunSlice) -> None:
        place = f"{self.catalogue.scale_file}: run {slice.run}"
        method_module(slice.training.method, f"{place}: training.method")
        training, tokens = slice.training, self.catalogue.dataset(slice.dataset).tokens
        batch = training.batch_size * (training.seq_len + 1)
        if tokens is not None and tokens < batch:
            raise ConfigError(
                f"{self.catalogue.folder / 'datasets.yaml'}: datasets.{slice.dataset}.tokens: "
                f"{tokens} is less than one batch of {batch} tokens (run {slice.run})"
            )
        if training.seq_len > slice.model.max_positions:
            raise ConfigError(
                f"{place}: seq_len {training.seq_len} is longer than max_positions "
                f"{slice.model.max_positions}"
            )

    def write(self, kind: str, slice: BaseModel) -> str:
        """Write a slice under a name made of its content; what is there already is the same."""
        path = Path(f"{self.layout.plan}/{kind}-{slice_fingerprint(slice)[:16]}.json")
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, slice.model_dump_json(indent=2) + "\n")
        return str(path)
