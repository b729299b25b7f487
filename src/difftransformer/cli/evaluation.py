"""Jobs that evaluate: run a suite on a model, judge its answers, time models."""

import os
from importlib import import_module
from pathlib import Path

from difftransformer.cli.step import Step
from difftransformer.provenance.command_errors import report_errors
from difftransformer.provenance.layout import Layout


def evaluate(step: Step) -> None:
    """Run the job of the rule `evaluate`: evaluate one suite on a trained or pretrained model."""
    with report_errors(step.log):
        from difftransformer.config.evaluations import EvaluationConfig
        from difftransformer.data.packed import PackedDataset
        from difftransformer.evaluation.evaluate import evaluate
        from difftransformer.evaluation.identity import identify

        config, output = step.read(EvaluationConfig), step.output()
        trained, manifest, ngrams = map(step.input, ("model", "data", "ngrams"))
        model = trained.parent if trained else None
        dataset = PackedDataset.open(manifest.parent) if manifest else None
        identity = identify(
            config,
            model=model,
            dataset=dataset,
            ngrams=ngrams,
            seed=step.seed,
            threads=step.threads,
            code=step.code,
        )
    with step.job(identity, config) as running:
        evaluate(
            config,
            model=model,
            dataset=dataset,
            ngrams=ngrams,
            output=output,
            details=output.with_suffix(""),
            state=step.state(identity),
            job=running,
        )


def judge_answers(step: Step) -> None:
    """Run the job of the rule `judge_answers`: judge the answers of one run to a suite.

    The judge is a language model or a comparison of words, as the config says.
    """
    with report_errors(step.log):
        from difftransformer.config.evaluations import evaluation, module_of
        from difftransformer.config.judges import JudgmentConfig, judged_suite

        config, output = step.read(JudgmentConfig), step.output()
        # Imported by name, since each evaluation with answers has its own judge module.
        judge = import_module(module_of(evaluation(config.kind).name, "judge"))
        generated = judge.open_answers(config, step.required("result"), step.seed)
        fields = {
            "seed": step.seed,
            "suite": judged_suite(config.suite, config.judge.kind),
            "upstream": (generated.result.job_id,),
        }
        # The fingerprint has the digest of the answers, so equal answers share judgments.
        identity = step.identity(config.scale, config.run, config, generated.sha256, **fields)
    with step.job(identity, config) as running:
        judge.judge_answers(
            config,
            generated=generated,
            cache_folder=Path(Layout(str(step.results), config.scale).kept_judgments),
            output=output,
            details=output.with_suffix(""),
            job=running,
        )


def benchmark(step: Step) -> None:
    """Run the job of the rule `benchmark`: time the models of a benchmark on this machine."""
    # Silences torch's profiler. The variable is read when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with report_errors(step.log):
        from difftransformer.config.evaluations import BenchmarkConfig
        from difftransformer.evaluation.timing import run_benchmark

        config, output = step.read(BenchmarkConfig), step.output()
        threads = config.config.threads or step.threads
        identity = step.identity(config.scale, config.evaluation, config, "", threads=threads)
    with step.job(identity, config) as running:
        run_benchmark(config, output=output, job=running)
