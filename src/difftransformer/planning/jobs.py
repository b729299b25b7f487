"""Data, training, evaluation and benchmark jobs: config, code fingerprint and inputs of each.

Configs are files named by their content: a changed setting changes the parameters of exactly the
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
"""Below this a second process costs more than it saves: about ten seconds of tokenizing."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """Data, training and evaluation jobs of one scale."""

    resolver: ConfigResolver

    # --- what there is ---

    @cached_property
    def layout(self) -> Layout:
        """Paths of all results."""
        return Layout(self.resolver.project.results, self.scale)

    @cached_property
    def sizes(self) -> Sizes:
        """Runs with their sizes, `match` applied."""
        return Sizes(self.resolver)

    @cached_property
    def pretrained_runs(self) -> PretrainedRuns:
        """Pretrained models and their adaptations among the runs."""
        return PretrainedRuns(self.resolver, self.sizes)

    @cached_property
    def user_files(self) -> UserFiles:
        """Listings of the user's files with their digests."""
        return UserFiles(Path(self.layout.plan))

    @property
    def scale(self) -> str:
        """Name of the scale."""
        return self.resolver.project.scale

    def trained(self, run: str) -> bool:
        """Whether a run is trained here, not a pretrained model."""
        return self.resolver.pretrained(run) is None

    # --- what a job gets ---

    @cache  # noqa: B019 - a plan lives as long as the process
    def run(self, name: str) -> RunConfig:
        """Return the resolved and checked config of a run."""
        run_config = self.sizes.run(name)
        parent = run_config.init_from if run_config.pretrained is None else None
        check_run(self.resolver, run_config, None if parent is None else self.run(parent))
        return run_config

    def stage(self, run: str) -> str:
        """Return the rule that trains a run: `adapt`, or `extend_context`, or else `pretrain`.

        A run that continues another one with longer positions extends the context of its parent.
        """
        if self.resolver.entry(run).adapt is not None:
            return "adapt"
        parent = self.resolver.entry(run).init_from
        if parent is None:
            return "pretrain"
        longer = self.run(run).model.max_positions > self.run(parent).model.max_positions
        return "extend_context" if longer else "pretrain"

    def trained_by(self, rule: str) -> list[str]:
        """Return the runs that a rule trains."""
        return [run for run in self.resolver.runs if self.trained(run) and self.stage(run) == rule]

    @cache  # noqa: B019 - a plan lives as long as the process
    def run_config_file(self, run: str) -> str:
        """Return the file with the config of a training job."""
        return self.write("run", self.run(run))

    def dataset_config_file(self, dataset: str) -> str:
        """Return the file with the config of a data job."""
        config = self.resolver.dataset(dataset)
        return self.write(
            "dataset", ResolvedDataset(scale=self.scale, dataset=dataset, config=config)
        )

    @cache  # noqa: B019 - a plan lives as long as the process
    def evaluation_config_file(self, suite: str, run: str) -> str:
        """Return the file with the config of an evaluation job."""
        config, base = self.pretrained_runs.suite_for(suite, run), self.resolver.pretrained(run)
        names = {"scale": self.scale, "run": run, "suite": suite}
        return self.write("evaluation", EvaluationConfig(**names, config=config, pretrained=base))

    def judges(self, suite: str) -> list[JudgeName]:
        """Return the judges of a suite's answers; empty for most suites."""
        return self.resolver.project.judge if self.resolver.suite(suite).judged else []

    def judgment_config_file(self, judge: str, suite: str, run: str) -> str:
        """Return the file with the config of a judging job."""
        kind = self.resolver.suite(suite).kind
        config = getattr(self.resolver.project.judges, judge)
        judgment_config = JudgmentConfig(
            scale=self.scale, run=run, suite=suite, kind=kind, judge=config
        )
        return self.write("judgment", judgment_config)

    def ngrams_config_file(self, dataset: str, suite: str) -> str:
        """Return the file with the config of an n-gram job."""
        ngrams = self.resolver.suite(suite).base_suite.ngrams
        assert ngrams is not None, suite
        ngrams_config = NgramsConfig(scale=self.scale, dataset=dataset, suite=suite, ngrams=ngrams)
        return self.write("ngrams", ngrams_config)

    def timing_gpus(self, name: str) -> int:
        """Return the GPUs that a benchmark job requests."""
        config = self.resolver.timing(name)
        return 0 if config is None else self._gpus(config.device)

    def timing_threads(self, name: str, cores: int) -> int:
        """Return the threads of a benchmark job: all ``cores``, or those it needs by CPU time."""
        config = self.resolver.timing(name)
        if config is None or config.clock == "wall" or config.threads is None:
            return cores
        return min(config.threads, cores)

    def code(self, rule: str, *parts: str, seed: int | None = None) -> str:
        """Return the fingerprint of a rule's code.

        Args:
            rule: Name of the rule.
            *parts: What its code is selected by: a run, a suite and a run, or a judge and a suite.
            seed: Of a training or an evaluation. Where its device is ``auto``, the finished result
                says which one it was.
        """
        if rule == "judge_answers":
            kind = self.resolver.suite(parts[1]).kind
            modules = module_of(kind, "judge"), (judge_module(kind, parts[0]),)
            return code_fingerprint(*modules, on_gpu=False)  # it computes with no model
        selected, on_gpu = tuple(self._selected(rule, parts)), self._on_gpu(rule, parts, seed)
        return code_fingerprint(ENTRIES[rule], selected, on_gpu=on_gpu)

    def modules(self, rule: str, *parts: str) -> list[str]:
        """Return the modules that a job imports; arguments as for `code`."""
        selected = (name.partition(":")[0] for name in self._selected(rule, parts))
        return list(dict.fromkeys([ENTRIES[rule], *selected]))

    @cache  # noqa: B019 - a plan lives as long as the process
    def gpus(self, run: str, suite: str | None = None) -> int:
        """Return the GPUs that a run's training, or its evaluation by a suite, requests."""
        if suite is not None:
            device = self.resolver.suite(suite).device
            if device != "auto" or self._has_gpu:
                return self._gpus(device)
        if not self.trained(run):  # measured where what adapting makes of it is trained
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
        """Return the threads that tokenize a dataset; small datasets use few."""
        tokens = self.resolver.dataset(dataset).tokens
        return cores if tokens is None else max(1, min(cores, tokens // TOKENS_PER_WORKER))

    # --- what a job reads ---

    @cache  # noqa: B019 - a plan lives as long as the process
    def corpus(self, dataset: str) -> list[str]:
        """List the user's files that a dataset and its tokenizer are read from."""
        from difftransformer.data.sources import corpus_files

        with data_of(dataset):
            files = corpus_files(self.resolver.dataset(dataset))
            return self.user_files.listing(f"dataset-{dataset}", files)

    def base_tokenizer(self, dataset: str) -> list[str]:
        """Return the tokenizer that a dataset takes over from its first base, if it has one."""
        owner = self.resolver.tokenizer_owner(dataset)
        return [] if owner == dataset else self.tokenizer_file(owner)

    def tokenizer_file(self, dataset: str) -> list[str]:
        """Return the tokenizer of a dataset; generated rows have none."""
        generated = self.resolver.dataset(dataset).tokenizer.kind == "none"
        return [] if generated else [self.layout.tokenizer(dataset)]

    def manifest(self, run: str) -> list[str]:
        """Return the manifest of the data that a run trains on, if it is trained here."""
        return [self.layout.manifest(self.run(run).dataset)] if self.trained(run) else []

    def measured_manifest(self, suite: str, run: str) -> list[str]:
        """Return the manifest of the data that a suite reads: its own, or a trained run's."""
        dataset = self.pretrained_runs.dataset_of(suite, run)
        if dataset is None:
            return self.manifest(run)
        return [self.layout.manifest(self.resolver.read_by(run, dataset))]

    def training_file(self, run: str, seed: int) -> list[str]:
        """Return the result of the training behind a model, if it is trained here."""
        return [self.layout.training(run, seed)] if self.trained(run) else []

    @cache  # noqa: B019 - a plan lives as long as the process
    def weights(self, run: str, seed: int) -> list[str]:
        """Return the weights of a run, or a list of the files of a pretrained model's folder."""
        pretrained = self.resolver.pretrained(run)
        if pretrained is None:
            return [self.layout.weights(run, seed)]
        return self.user_files.listing(f"run-{run}", model_files(pretrained))

    def beside_weights(self, suite: str | None, run: str, seed: int) -> list[str]:
        """Return the other files of a trained model that a job reads.

        Args:
            suite: What it is read for; None: another training that starts from it.
            run: Its run.
            seed: Its seed.
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
        """List the user's files with the items of a suite."""
        files = self.resolver.suite(suite).base_suite.files()
        return self.user_files.listing(f"suite-{suite}", files.values())

    def ngrams_file(self, suite: str, run: str) -> list[str]:
        """Return the frequent n-grams that a suite needs, if it needs them."""
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
        """Write a config to a file named by its content, unless it exists."""
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
