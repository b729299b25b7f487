"""Scores of quantized models: 16 bits change nothing, few do, and the model is restored."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import eval_context, evaluate_as_job, metrics_of, save_run, scorer, sizes

from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.validation import validate
from difftransformer.convert.checkpoint import load_model
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.evaluation.context import EvalContext, EvalResult
from difftransformer.evaluations.quantized.measure import METRICS, measure
from difftransformer.evaluations.quantized.settings import Suite
from difftransformer.evaluations.recall.measure import measure as measure_recall
from difftransformer.provenance.result import PerItemScores, read_result

QUANTITIES = ("attention_logits", "weights", "kv_cache")
RECALL = {"kind": "recall", "needles": [1, 2], "samples": 64}
LOSS = {"kind": "validation_slices", "seq_len": 16}
HELLASWAG = {
    "kind": "language_understanding", "tasks": ["hellaswag"], "data": "builtin", "limit": 3,
}  # fmt: skip


def suite(repeated: dict[str, Any], score: str, **changes: Any) -> Suite:
    raw = {"kind": "quantized", "repeated_suite": "other", "score": score, "suite": repeated}
    parsed: Suite = validate(Suite, raw | changes, "evaluations.yaml: suites.x")
    return parsed


def measured(
    run: Path, dataset: Path | PackedDataset, ngrams: Path | None, folder: Path
) -> EvalContext:
    opened = dataset if isinstance(dataset, PackedDataset) else PackedDataset.open(dataset)
    base_context = eval_context(scorer(load_model(run, "eager")), opened, ngrams)
    return EvalContext(
        **(vars(base_context) | {"details": folder / "details", "state": folder / "state"})
    )


def test_16_bits_change_no_accuracy_and_the_model_is_restored(
    recall_run: Path, recall: Path, tmp_path: Path
) -> None:
    context = measured(recall_run, recall, None, tmp_path)
    settings = suite(RECALL, "accuracy_n2", chance="chance_n2", bits=[16, 2])
    metrics = metrics_of(measure(settings, context))
    assert metrics["chance"] == 0.5
    for what in QUANTITIES:
        assert metrics[f"score_{what}_b16"] == metrics["score_unquantized"], what
    exact = json.loads((context.details / "unquantized" / METRICS).read_text())
    assert exact == metrics_of(
        measure_recall(settings.base_suite, context)
    )  # the model is as it was


def test_the_error_of_losses_grows_with_fewer_bits(
    text_run: Path, text: Path, ngrams: Path, tmp_path: Path
) -> None:
    metrics = metrics_of(measure(suite(LOSS, "loss"), measured(text_run, text, ngrams, tmp_path)))
    exact = metrics["score_unquantized"]
    assert exact is not None
    for what in QUANTITIES:
        away = [abs((metrics[f"score_{what}_b{bits}"] or 0) - exact) for bits in (16, 8, 4)]
        assert away[0] < 1e-4 and away[0] < away[1] < away[2], (what, away)


def test_lm_eval_scores_the_quantized_model(english: PackedDataset, tmp_path: Path) -> None:
    run = save_run(tmp_path / "run", english.manifest.vocab_size, dataset=english.folder)
    context = measured(run, english, None, tmp_path)
    metrics = metrics_of(measure(suite(HELLASWAG, "hellaswag", bits=[16, 2]), context))
    lines = {
        name: (context.details / name / "hellaswag.jsonl").read_text()
        for name in ("unquantized", "attention_logits_b2", "weights_b2", "kv_cache_b2")
    }
    assert len(set(lines.values())) == 4  # every one was computed for itself
    for what in QUANTITIES:
        assert metrics[f"score_{what}_b16"] == metrics["score_unquantized"]


def test_an_unknown_score_is_named(recall_run: Path, recall: Path, tmp_path: Path) -> None:
    context = measured(recall_run, recall, None, tmp_path)
    with pytest.raises(ConfigError, match=r"no metric 'acuracy_n2'; did you mean 'accuracy_n2'"):
        measure(suite(RECALL, "acuracy_n2"), context)


def test_settings_are_inherited_from_the_repeated_suite() -> None:
    settings = suite(RECALL | {"device": "cpu", "batch_size": 3, "backend": "sdpa"}, "accuracy_n2")
    assert (settings.device, settings.batch_size, settings.backend) == ("cpu", 3, "eager")
    assert validate(Suite, settings.model_dump(mode="json"), "read back") == settings
    with pytest.raises(ConfigError, match=r"device: .*'other', cpu"):
        suite(RECALL | {"device": "cpu"}, "accuracy_n2", device="cuda")
    properties = Suite.model_json_schema()["properties"]
    assert not {"suite", "device", "precision", "batch_size", "backend"} & set(properties)


def test_as_a_job_its_result_is_written_with_eager_attention(
    recall_run: Path, recall: Path, tmp_path: Path
) -> None:
    settings = suite(RECALL, "accuracy_n2", bits=[8, 4])
    evaluate_as_job(
        EvaluationConfig(scale="unit", run="diff", suite="quantized", config=settings),
        tmp_path / "result.json",
        model=recall_run,
        dataset=recall,
        threads=torch.get_num_threads(),
    )
    result = read_result(tmp_path / "result.json")
    scores = {f"score_{what}_b{bits}" for what in QUANTITIES for bits in (8, 4)}
    assert set(result.metrics) == {"score_unquantized", *scores}
    assert result.settings["resolved"]["backend"] == "eager"


def test_a_scale_fills_in_the_suite_that_is_repeated() -> None:
    folder = Path(__file__).parents[3] / "config"
    resolver = ConfigResolver.load(folder, {"scale": "smoke"})
    assert resolver.suite("quantized_accuracy").suite == resolver.suite("recall")
    items = ConfigResolver.load(folder, {"scale": "gpu", "benchmarks": "builtin"})
    assert items.suite("quantized_accuracy").suite.data == "builtin"
    resolver.suites["quantized_loss"]["repeated_suite"] = "quantized_accuracy"
    with pytest.raises(ConfigError, match=r"quantized_loss\.repeated_suite: .* cannot be repeated"):
        resolver.suite("quantized_loss")


def test_scores_come_with_items_of_the_repeated_suite(
    text_run: Path, text: Path, ngrams: Path, tmp_path: Path
) -> None:
    context = measured(text_run, text, ngrams, tmp_path)
    scores = measure(suite(LOSS, "loss", bits=[16, 2]), context)
    assert {*scores.per_item} == {name for name in scores.metrics if name.startswith("score_")}
    ((_, documents),) = {size for per_item in scores.per_item.values() for size in sizes(per_item)}
    assert documents == len(PackedDataset.open(text).split("validation").document_ends())
    rough, fine = (scores.per_item[f"score_weights_b{bits}"] for bits in (2, 16))
    assert rough != fine
    change = PerItemScores.weighted_sum([(1.0, rough), (-1.0, fine)])
    value = (scores.metrics["score_weights_b2"] or 0) - (scores.metrics["score_weights_b16"] or 0)
    metrics_of(EvalResult({"change": value}, {"change": change}))
