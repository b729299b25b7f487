"""The evaluation job: from input folders to a result file, and its errors."""

import math
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_evaluation import RECALL, evaluate_as_job, republish, save_run

from difftransformer.config.evaluations import EvaluationConfig, module_of
from difftransformer.config.run import PretrainedModel
from difftransformer.data.ngrams import write_keys
from difftransformer.errors import BackendError, CheckpointError, ConfigError, DataError, UserError
from difftransformer.evaluation.context import EvalResult, PretrainedContext, per_item_scores
from difftransformer.evaluation.evaluate import _require_finite
from difftransformer.evaluations.validation_slices.measure import load_frequent
from difftransformer.models.linear import matmul_backend
from difftransformer.provenance.result import Result, read_result
from difftransformer.tracking.tracker import NullTracker

SLICES = {"kind": "validation_slices", "seq_len": 16, "max_count": 6, "batch_size": 8}
RECALLS = {"kind": "recall", "needles": [1, 2], "samples": 16}


class RecordingTracker(NullTracker):
    """Records metrics and artifacts."""

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.artifacts: list[Path] = []

    def log_metrics(self, values: Any, step: int = 0) -> None:
        self.metrics.update(values)

    def log_artifact(self, path: Path) -> None:
        self.artifacts.append(path)


def make_slice(config: dict[str, Any], run: str = "diff") -> EvaluationConfig:
    return EvaluationConfig.model_validate(
        {"scale": "unit", "run": run, "suite": "held_out", "config": config}
    )


def run(output: Path, config: dict[str, Any], **inputs: Any) -> Result:
    evaluate_as_job(make_slice(config), output, **inputs)
    return read_result(output)


def test_saved_answers_are_separate_for_each_set_of_weights(
    tmp_path: Path, text: Path, text_run: Path, ngrams: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that is forced again has its fingerprint again, and may have other weights."""
    again = Path(shutil.copytree(text_run, tmp_path / "again"))
    other = Path(shutil.copytree(text_run, tmp_path / "other"))
    weights = load_file(other / "model.safetensors")
    save_file(
        {name: tensor * 1.01 for name, tensor in weights.items()}, other / "model.safetensors"
    )
    republish(other)
    seen = []
    module = import_module(module_of("validation_slices", "measure"))
    real = module.measure
    monkeypatch.setattr(
        module, "measure", lambda suite, context: seen.append(context.state) or real(suite, context)
    )
    for number, model in enumerate((text_run, again, other)):
        run(tmp_path / f"{number}.json", SLICES, model=model, dataset=text, ngrams=ngrams)
    assert seen[0].name == seen[1].name != seen[2].name


def test_validation_slices_write_a_result(
    tmp_path: Path, text: Path, text_run: Path, ngrams: Path
) -> None:
    output, tracker = tmp_path / "deep" / "held_out.json", RecordingTracker()
    result = run(output, SLICES, model=text_run, dataset=text, ngrams=ngrams, tracker=tracker)
    assert (result.kind, result.run, result.seed) == ("evaluation", "diff", 3)
    assert result.suite == "held_out"
    assert result.metrics["tokens"] == 34 * 16
    assert result.settings["config"]["n"] == 2
    assert result.settings["resolved"] == {
        "device": "cpu",
        "backend": "cpu_dispatch",
        "matmul_backend": matmul_backend(),
    }
    assert result.settings["upstream"] == [read_result(text_run / "training.json").job_id]
    fingerprint = result.provenance.fingerprint
    assert result.job_id == f"evaluate-diff-held_out-3-{fingerprint[:10]}"
    assert tracker.metrics["loss"] == result.metrics["loss"]
    assert tracker.artifacts == [output]


def test_repeated_evaluations_have_the_same_metrics_and_id(
    tmp_path: Path, text: Path, text_run: Path, ngrams: Path
) -> None:
    inputs = {"model": text_run, "dataset": text, "ngrams": ngrams}
    first = run(tmp_path / "a.json", SLICES, **inputs)
    again = run(tmp_path / "b.json", SLICES, **inputs)
    assert first.metrics == again.metrics
    assert first.job_id == again.job_id


@pytest.mark.parametrize("changed", ["config", "code", "ngrams"])
def test_every_relevant_setting_changes_the_id(
    tmp_path: Path, text: Path, text_run: Path, ngrams: Path, changed: str
) -> None:
    inputs: dict[str, Any] = {"model": text_run, "dataset": text, "ngrams": ngrams}
    first = run(tmp_path / "a.json", SLICES, **inputs)
    if changed == "ngrams":
        inputs["ngrams"] = tmp_path / "other.npy"
        write_keys(inputs["ngrams"], np.append(load_frequent(ngrams), np.uint64(2**63)))
    config = SLICES | ({"seq_len": 8} if changed == "config" else {})
    code = "other" if changed == "code" else "c"
    other = run(tmp_path / "b.json", config, code=code, **inputs)
    assert other.job_id != first.job_id


def test_settings_of_another_model_change_the_id(
    tmp_path: Path, recall: Path, recall_run: Path
) -> None:
    other = shutil.copytree(recall_run, tmp_path / "other")
    republish(other, provenance={"fingerprint": "another"})
    a = run(tmp_path / "a.json", RECALLS, model=recall_run, dataset=recall)
    b = run(tmp_path / "b.json", RECALLS, model=other, dataset=recall)
    assert a.job_id != b.job_id
    assert a.metrics == b.metrics


def refused(output: Path, kind: type[UserError], config: dict[str, Any], **inputs: Any) -> str:
    """The one line that a call ends with; nothing is written."""
    with pytest.raises(kind) as error:
        run(output, config, **inputs)
    assert not output.exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def measuring(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the recall suite's own function change what it returns."""
    module = import_module(module_of("recall", "measure"))
    real = module.measure
    monkeypatch.setattr(module, "measure", lambda *args: {**real(*args).metrics, **change})


def test_a_nan_metric_with_finite_weights_names_the_evaluation(
    tmp_path: Path, recall: Path, recall_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring({"accuracy_n2": float("nan")}, monkeypatch)
    inputs = {"model": recall_run, "dataset": recall}
    line = refused(tmp_path / "r", CheckpointError, RECALLS, **inputs)
    assert f"{recall_run}: accuracy_n2 is nan, with weights that are finite" in line
    assert "measure should return None for what is undefined" in line


def test_an_infinite_metric_of_unchecked_weights_does_not_mention_weights(tmp_path: Path) -> None:
    model = PretrainedModel(name="a/model", revision="main")
    context = PretrainedContext(model, torch.device("cpu"), tmp_path, tmp_path)
    with pytest.raises(
        CheckpointError, match=r"^theirs: p is inf: either .*`dtype`.* None"
    ) as line:
        _require_finite({"n": 2.0, "p": math.inf}, context, "theirs")
    assert "finite" not in str(line.value) and "train" not in str(line.value)


def returning(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the recall suite's own function return something else."""
    module = import_module(module_of("recall", "measure"))
    monkeypatch.setattr(module, "measure", lambda *args: result)


def test_per_item_scores_that_do_not_sum_to_the_metric_are_refused(
    tmp_path: Path, recall: Path, recall_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"model": recall_run, "dataset": recall}
    for values, right in (([1.0, 0.0], True), ([1.0, 1.0], False)):
        per_item = {"accuracy_n2": per_item_scores("rows", values)}
        result = EvalResult({"accuracy_n1": None, "accuracy_n2": 0.5}, per_item)
        returning(result, monkeypatch)
        if right:
            assert run(tmp_path / "r", RECALLS, **inputs).per_item == per_item
        else:
            assert "its rows give" in refused(tmp_path / "s", ConfigError, RECALLS, **inputs)


def test_invalid_metrics_write_no_result(
    tmp_path: Path, recall: Path, recall_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returning([0.5], monkeypatch)
    line = refused(tmp_path / "r", ConfigError, RECALLS, model=recall_run, dataset=recall)
    assert line.startswith("evaluations/recall: measure returns a list in place of metrics")


def test_a_vocabulary_larger_than_the_model_is_refused(tmp_path: Path, recall: Path) -> None:
    small = save_run(tmp_path / "small", RECALL.vocab_size - 1, dataset=recall)
    line = refused(tmp_path / "r", ConfigError, RECALLS, model=small, dataset=recall)
    assert f"token ids up to {RECALL.vocab_size - 1}" in line
    assert f"has {RECALL.vocab_size - 1}" in line


def test_missing_dataset_and_ngrams(
    tmp_path: Path, text: Path, text_run: Path, ngrams: Path
) -> None:
    missing = tmp_path / "nothing"
    lines = [
        refused(tmp_path / "r", DataError, SLICES, model=text_run, dataset=missing, ngrams=ngrams),
        refused(tmp_path / "r", DataError, SLICES, model=text_run, dataset=text, ngrams=missing),
    ]
    assert all(str(missing) in line for line in lines)


def test_window_longer_than_the_context(
    tmp_path: Path, text: Path, text_run: Path, ngrams: Path
) -> None:
    config = SLICES | {"seq_len": 64}
    line = refused(tmp_path / "r", ConfigError, config, model=text_run, dataset=text, ngrams=ngrams)
    assert "max_positions 40" in line


def test_an_unavailable_backend_is_refused(tmp_path: Path, recall: Path, recall_run: Path) -> None:
    config = RECALLS | {"backend": "flash_attn", "device": "cpu", "precision": "bf16"}
    line = refused(tmp_path / "r", BackendError, config, model=recall_run, dataset=recall)
    assert "flash_attn" in line


def loaded_by(*modules: str) -> set[str]:
    """Names of the top-level packages in memory after importing some modules."""
    imports = ", ".join(f"difftransformer.{module}" for module in modules)
    program = f"import sys, {imports}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_imports_are_lean() -> None:
    heavy = {"transformers", "mlflow", "pandas", "seaborn", "lm_eval", "scipy"}
    assert not heavy & loaded_by(
        "evaluation.evaluate",
        "evaluations.validation_slices.measure",
        "evaluations.recall.measure",
        "evaluations.attention_allocation.measure",
    )


def test_identity_needs_no_torch() -> None:
    assert "torch" not in loaded_by("evaluation.identity")
