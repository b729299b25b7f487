"""Data, training, evaluation and benchmark jobs: config, code fingerprint and inputs of each.

Configs are files named by their content, so a changed setting changes the parameters of exactly the
jobs that use it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from pydantic import BaseModel

from difftransformer.config.evaluation import NgramsConfig
from difftransformer.config.evaluations import EvaluationConfig, module_of
from difftransformer.config.judges import JudgeName, JudgmentConfig, judge_module
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.run import ResolvedDataset, RunConfig
from difftransformer.convert.hf_attention.registry import reader_locations
from difftransformer.errors import data_of
from difftransformer.machine import gpus
from difftransformer.models.attention.registry import variant_location
from difftransformer.planning.checks import check_run
from difftransformer.planning.devices import computes_on_gpu
from difftransformer.planning.gpu_memory_budget import host_mb
from difftransformer.planning.pretrained import PretrainedRuns
from difftransformer.planning.rules import ENTRIES
from difftransformer.planning.sizes import Sizes
from difftransformer.planning.user_files import UserFiles
from difftransformer.provenance.atomic import write_bytes
from difftransformer.provenance.fingerprint import code_fingerprint, config_fingerprint
from difftransformer.provenance.layout import INTERMEDIATE, Layout
from difftransformer.provenance.model_files import model_files
from difftransformer.training.methods import method_module

TOKENS_PER_WORKER = 10_000_000
"""Tokens per tokenizing process, about ten seconds of work; a process for less is not worth it."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """Data, training, evaluation and benchmark jobs of one scale."""

    resolver: ConfigResolver

    # --- what there is ---

    @cached_property
    def layout(self) -> Layout:
        """Paths of all files of the scale."""
        return Layout(self.resolver.project.results, self.scale)

    @cached_property
    def sizes(self) -> Sizes:
        """Resolver of the runs' model sizes, which may be set to match another run (`match`)."""
        return Sizes(self.resolver)

    @cached_property
    def pretrained_runs(self) -> PretrainedRuns:
        """The pretrained models and their adaptations among the runs."""
        return PretrainedRuns(self.resolver, self.sizes)

    @cached_property
    def user_files(self) -> UserFiles:
        """Writer of listings of the user's files with their digests."""
        return UserFiles(Path(self.layout.plan))

    @property
    def scale(self) -> str:
        """Name of the scale."""
        return self.resolver.project.scale

    def trained(self, run: str) -> bool:
        """Return whether a run is trained here; False for a pretrained model."""
        return self.resolver.pretrained(run) is None

    # --- what a job gets ---

    @cache  # noqa: B019 - a plan lives as long as the process
    def run(self, name: str) -> RunConfig:
        """Return the resolved and checked config of the run called ``name``."""
        run_config = self.sizes.run(name)
        parent = run_config.init_from if run_config.pretrained is None else None
        check_run(self.resolver, run_config, None if parent is None else self.run(parent))
        return run_config

    def stage(self, run: str) -> str:
        """Return the name of the Snakemake rule that trains a run.

        The rule is `adapt` for a run with an adaptation method. It is `extend_context` for a run
        that starts from a parent run and has more positions than the parent. Otherwise it is
        `pretrain`.
        """
        if self.resolver.entry(run).adapt is not None:
            return "adapt"
        parent = self.resolver.entry(run).init_from
        if parent is None:
            return "pretrain"
        longer = self.run(run).model.max_positions > self.run(parent).model.max_positions
        return "extend_context" if longer else "pretrain"

    def trained_by(self, rule: str) -> list[str]:
        """Return the names of the runs that the given Snakemake rule trains."""
        return [run for run in self.resolver.runs if self.trained(run) and self.stage(run) == rule]

    @cache  # noqa: B019 - a plan lives as long as the process
    def run_config_file(self, run: str) -> str:
        """Write the config of a training job to a file, and return its path."""
        return self.write("run", self.run(run))

    def dataset_config_file(self, dataset: str) -> str:
        """Write the config of a data job to a file, and return its path."""
        config = self.resolver.dataset(dataset)
        return self.write(
            "dataset", ResolvedDataset(scale=self.scale, dataset=dataset, config=config)
        )

    @cache  # noqa: B019 - a plan lives as long as the process
    def evaluation_config_file(self, suite: str, run: str) -> str:
        """Write the config of an evaluation job to a file, and return its path."""
        config, base = self.pretrained_runs.suite_for(suite, run), self.resolver.pretrained(run)
        names = {"scale": self.scale, "run": run, "suite": suite}
        return self.write("evaluation", EvaluationConfig(**names, config=config, pretrained=base))

    def judges(self, suite: str) -> list[JudgeName]:
        """Return the names of the judges of a suite's answers; empty for most suites."""
        return self.resolver.project.judge if self.resolver.suite(suite).judged else []

    def judgment_config_file(self, judge: str, suite: str, run: str) -> str:
        """Write the config of a judging job to a file, and return its path."""
        kind = self.resolver.suite(suite).kind
        config = getattr(self.resolver.project.judges, judge)
        judgment_config = JudgmentConfig(
            scale=self.scale, run=run, suite=suite, kind=kind, judge=config
        )
        return self.write("judgment", judgment_config)

    def ngrams_config_file(self, dataset: str, suite: str) -> str:
        """Write the config of a job that counts n-grams to a file, and return its path."""
        ngrams = self.resolver.suite(suite).base_suite.ngrams
        assert ngrams is not None, suite
        ngrams_config = NgramsConfig(scale=self.scale, dataset=dataset, suite=suite, ngrams=ngrams)
        return self.write("ngrams", ngrams_config)

    def timing_gpus(self, name: str) -> int:
        """Return the number of GPUs that the benchmark job of an evaluation requests."""
        config = self.resolver.timing(name)
        return 0 if config is None else self._gpus(config.device)

    def timing_threads(self, name: str, cores: int) -> int:
        """Return the number of threads of the benchmark job of an evaluation.

        Args:
            name: Evaluation that measures the timings.
            cores: Number of available cores. A benchmark of wall time uses all of them.
        """
        config = self.resolver.timing(name)
        if config is None or config.clock == "wall" or config.threads is None:
            return cores
        return min(config.threads, cores)

    def code(self, rule: str, *parts: str, seed: int | None = None) -> str:
        """Return the fingerprint of the code that a job of a rule runs.

        Args:
            rule: Name of the Snakemake rule.
            *parts: Ids that select the code: a run, a suite and a run, or a judge and a suite.
            seed: Seed of a training or evaluation. If its device is "auto", the finished result
                with this seed tells which device was used.
        """
        if rule == "judge_answers":
            kind = self.resolver.suite(parts[1]).kind
            modules = module_of(kind, "judge"), (judge_module(kind, parts[0]),)
            return code_fingerprint(*modules, on_gpu=False)  # judging runs no local model
        selected, on_gpu = tuple(self._selected(rule, parts)), self._on_gpu(rule, parts, seed)
        return code_fingerprint(ENTRIES[rule], selected, on_gpu=on_gpu)

    def modules(self, rule: str, *parts: str) -> list[str]:
        """Return the names of the modules that a job imports; the arguments are those of `code`."""
        selected = (name.partition(":")[0] for name in self._selected(rule, parts))
        return list(dict.fromkeys([ENTRIES[rule], *selected]))

    @cache  # noqa: B019 - a plan lives as long as the process
    def gpus(self, run: str, suite: str | None = None) -> int:
        """Return the number of GPUs that a training job, or an evaluation job, requests.

        Args:
            run: Name of the run.
            suite: Suite of the evaluation; None: the training of the run.
        """
        if suite is not None:
            device = self.resolver.suite(suite).device
            if device != "auto" or self._has_gpu:
                return self._gpus(device)
        if not self.trained(run):  # a pretrained model is evaluated where its adaptation is
            adapted = self.trained_by("adapt")
            children = (name for name in adapted if self.resolver.entry(name).init_from == run)
            if (child := next(children, None)) is None:
                return 0
            run = child
        training = self.run(run).training
        return self._gpus(training.device) * (training.world_size if suite is None else 1)

    @cache  # noqa: B019 - a plan lives as long as the process
    def host_mb(self, run: str) -> int:
        """Return the host memory in MB that a training requests."""
        return host_mb(self.run(run).model)

    def workers(self, dataset: str, cores: int) -> int:
        """Return the number of threads that tokenize a dataset; small datasets use few.

        Args:
            dataset: Name of the dataset.
            cores: Number of available cores.
        """
        tokens = self.resolver.dataset(dataset).tokens
        return cores if tokens is None else max(1, min(cores, tokens // TOKENS_PER_WORKER))

    # --- what a job reads ---

    @cache  # noqa: B019 - a plan lives as long as the process
    def corpus(self, dataset: str) -> list[str]:
        """Return the path of a listing of the user's files from which a dataset is built.

        The tokenizer of the dataset is trained on the same files. The list is empty without such
        files.
        """
        from difftransformer.data.sources import corpus_files

        with data_of(dataset):
            files = corpus_files(self.resolver.dataset(dataset))
            return self.user_files.listing(f"dataset-{dataset}", files)

    def base_tokenizer(self, dataset: str) -> list[str]:
        """Return the path of the tokenizer that a dataset inherits from its first base dataset.

        The list is empty if the dataset has a tokenizer of its own.
        """
        owner = self.resolver.tokenizer_owner(dataset)
        return [] if owner == dataset else self.tokenizer_file(owner)

    def tokenizer_file(self, dataset: str) -> list[str]:
        """Return the path of a dataset's tokenizer; the list is empty for generated rows."""
        generated = self.resolver.dataset(dataset).tokenizer.kind == "none"
        return [] if generated else [self.layout.tokenizer(dataset)]

    def manifest(self, run: str) -> list[str]:
        """Return the path of a run's training data manifest; empty for a pretrained model."""
        return [self.layout.manifest(self.run(run).dataset)] if self.trained(run) else []

    def measured_manifest(self, suite: str, run: str) -> list[str]:
        """Return the path of the manifest of the data that a suite reads.

        The data is the suite's own dataset or else the training data of the run. The list is empty
        for a pretrained model without a dataset.
        """
        dataset = self.pretrained_runs.dataset_of(suite, run)
        if dataset is None:
            return self.manifest(run)
        return [self.layout.manifest(self.resolver.read_by(run, dataset))]

    def training_file(self, run: str, seed: int) -> list[str]:
        """Return the path of the training result of a model; empty for a pretrained model."""
        return [self.layout.training(run, seed)] if self.trained(run) else []

    @cache  # noqa: B019 - a plan lives as long as the process
    def weights(self, run: str, seed: int) -> list[str]:
        """Return the path of a run's weights, or of a listing of a pretrained model's files."""
        pretrained = self.resolver.pretrained(run)
        if pretrained is None:
            return [self.layout.weights(run, seed)]
        return self.user_files.listing(f"run-{run}", model_files(pretrained))

    def beside_weights(self, suite: str | None, run: str, seed: int) -> list[str]:
        """Return the paths of a trained model's files, other than its weights, that a job reads.

        Args:
            suite: Suite that evaluates the model; None: a training that starts from the model.
            run: Run of the model.
            seed: Seed of the model.
        """
        if not self.trained(run):
            return []
        names = ["config.json", "tokenizer.json"]
        if suite is not None and self.resolver.entry(run).adapt is not None:
            names.append("adapter.safetensors")
        if suite is not None and self.resolver.suite(suite).base_suite.reads_intermediate:
            names.append(INTERMEDIATE)
        return [self.layout.model(run, seed, name) for name in names]

    @cache  # noqa: B019 - a plan lives as long as the process
    def benchmarks(self, suite: str) -> list[str]:
        """Return the path of a listing of the user's files with a suite's items, if any."""
        files = self.resolver.suite(suite).base_suite.files()
        return self.user_files.listing(f"suite-{suite}", files.values())

    def ngrams_file(self, suite: str, run: str) -> list[str]:
        """Return the path of the frequent n-grams that a suite needs; empty if it needs none."""
        settings = self.resolver.suite(suite)
        if settings.base_suite.ngrams is None:
            return []
        owner = suite if settings.repeats is None else getattr(settings, settings.repeats)
        return [self.layout.ngrams(self.run(run).dataset, owner)]

    # --- parts ---

    def _on_gpu(self, rule: str, parts: Sequence[str], seed: int | None) -> bool:
        """Return whether a job uses GPU code."""
        match rule:
            case "pretrain" | "extend_context" | "adapt":
                config = self.run(parts[0]).training
                result = None if seed is None else self.layout.training(parts[0], seed)
                return computes_on_gpu(config.device, [config.backend], result)
            case "evaluate":
                suite = self.resolver.suite(parts[0])
                result = None if seed is None else self.layout.evaluation(parts[0], parts[1], seed)
                return computes_on_gpu(suite.device, [suite.backend], result)
        return False

    def _selected(self, rule: str, parts: Sequence[str]) -> Iterator[str]:
        match rule:
            case "pretrain" | "extend_context" | "adapt":
                run = self.run(parts[0])
                yield variant_location(run.model.attention.variant)
                if run.adapt is not None:
                    yield method_module(run.adapt["method"])
            case "evaluate":
                suite = self.resolver.suite(parts[0])
                for kind in sorted({suite.kind, suite.base_suite.kind}):
                    yield from (module_of(kind, "settings"), module_of(kind, "measure"))
                if self.trained(parts[1]):
                    yield variant_location(self.run(parts[1]).model.attention.variant)
                if self.pretrained_runs.includes(parts[1]) and suite.base_suite.reads_text:
                    yield from reader_locations()

    def write(self, kind: str, config: BaseModel) -> str:
        """Write a config to a file named by its content, unless it exists; return the path."""
        path = Path(f"{self.layout.plan}/{kind}-{config_fingerprint(config)[:16]}.json")
        data = f"{config.model_dump_json(indent=2)}\n".encode()
        if not path.is_file() or path.read_bytes() != data:
            # Hundreds of files: fsync would take seconds, so a power cut may leave damaged ones.
            write_bytes(path, data, durable=False)
        return str(path)

    @cached_property
    def _has_gpu(self) -> bool:
        return bool(gpus.visible_gpus())

    def _gpus(self, device: str) -> int:
        return int(device == "cuda" or (device == "auto" and self._has_gpu))
