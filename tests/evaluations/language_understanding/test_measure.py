"""Accuracies equal lm-eval's own, for our models and external ones; jobs resume by task."""

import json
import math
import shutil
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from small_evaluation import evaluate_as_job, metrics_of, sizes
from small_language_models import (
    ROOM,
    TASKS,
    WRITTEN,
    assert_scored_alike,
    copy_items,
    run_lm_eval,
    suite,
    write_llama,
    write_tasks,
    write_training,
)

from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.config.run import PretrainedModel
from difftransformer.convert.checkpoint import load_model
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError, DataError
from difftransformer.evaluation.context import EvalContext, Metrics, PretrainedContext
from difftransformer.evaluation.harness import wrap_for_lm_eval
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.language_understanding import measure as evaluation
from difftransformer.evaluations.language_understanding.loading import load_task, task_manager
from difftransformer.provenance.result import read_result
from difftransformer.publishing.publish import publish

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "llama")


def elsewhere(name: object, folder: Path) -> PretrainedContext:
    details = folder / "details"
    details.mkdir(parents=True, exist_ok=True)
    return PretrainedContext(PretrainedModel(name=str(name)), CPU, details, folder / "state")


def measure(folder: Path, llama: Path, **changes: object) -> Metrics:
    return metrics_of(evaluation.measure(suite(**changes), elsewhere(llama, folder)))


def samples(folder: Path, task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{task}.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("shots", [0, 2])
def test_a_llama_scores_as_in_lm_evals_own_run(shots: int, tmp_path: Path, llama: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    names = write_tasks(tmp_path / "tasks", shots)
    theirs = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(llama)},
        tasks=names,
        batch_size=4,
        device="cpu",
        limit=12,
        gen_kwargs=f"max_gen_toks={ROOM}",
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
    )
    tasks = [*TASKS, *WRITTEN] if shots == 0 else TASKS
    ours = measure(tmp_path, llama, tasks=tasks, num_fewshot=shots, limit=12, max_new_tokens=ROOM)
    assert_scored_alike(ours, theirs["results"], tasks)
    for task in TASKS:
        for ours_item, lm_eval_item in zip(
            samples(tmp_path / "details", task), theirs["samples"][f"mine_{task}"], strict=True
        ):
            assert ours_item["prompt_hash"] == lm_eval_item["prompt_hash"]
            assert [tuple(reply) for reply in ours_item["filtered_resps"]] == [
                pytest.approx(tuple(reply), rel=1e-6) for reply in lm_eval_item["filtered_resps"]
            ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "options"), [("huggingface", ("--trust_remote_code",)), ("diffllama", ())]
)
def test_our_model_scores_as_the_lm_eval_command_on_what_is_published(
    format: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    run, data = write_training(tmp_path)
    (tmp_path / "details").mkdir()
    context = EvalContext(
        Scorer(load_model(run), CPU),
        PackedDataset.open(data),
        CPU,
        None,
        details=tmp_path / "details",
        state=tmp_path / "state",
        seed=3,
    )
    tasks = [*TASKS, *WRITTEN]
    ours = metrics_of(evaluation.measure(suite(tasks=tasks, max_new_tokens=ROOM), context))
    publish(run, tmp_path / "published", format=format)
    theirs = run_lm_eval(tmp_path / "published", tmp_path, *options)
    assert_scored_alike(ours, theirs, tasks)


@pytest.mark.slow
def test_a_killed_job_resumes_with_the_next_task(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninterrupted = measure(tmp_path / "whole", llama, limit=6)
    evaluate_task, evaluated = evaluation.evaluate_task, []

    def dies_at_the_second(model: Any, task: Any, limit: int | None, **options: Any) -> Any:
        evaluated.append(next(iter(task["tasks"])))
        if len(evaluated) == 2:
            raise KeyboardInterrupt
        return evaluate_task(model, task, limit, **options)

    monkeypatch.setattr(evaluation, "evaluate_task", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "killed", llama, limit=6)
    assert measure(tmp_path / "killed", llama, limit=6) == uninterrupted
    assert evaluated == [TASKS[0], *TASKS[1:2], *TASKS[1:]]
    for task in TASKS:
        items = samples(tmp_path / "killed" / "details", task)
        assert len(items) == uninterrupted[f"{task}_samples"] == 6
        assert {"doc", "arguments", "filtered_resps", "acc"} <= set(items[0])


@pytest.mark.slow
def test_the_average_is_over_tasks_and_truncated_requests_are_counted(
    tmp_path: Path, llama: Path
) -> None:
    metrics = measure(tmp_path, llama, num_fewshot=5)
    values = [metrics[task] for task in TASKS]
    assert metrics["average"] == pytest.approx(sum(values) / len(TASKS), abs=1e-12)
    errors = [metrics[f"{task}_stderr"] for task in TASKS]
    assert metrics["average_stderr"] == pytest.approx(math.hypot(*errors) / len(TASKS), abs=1e-12)
    assert [metrics[f"{task}_chance"] for task in TASKS] == pytest.approx(
        [0.25, 0.25, 0.5, 0.5, 1 / 3, 0.5, 0.5]
    )
    lengths = metrics["hellaswag_truncated"], metrics["winogrande_truncated"]
    assert lengths[0] == 1.0 and 0 < metrics["arc_easy_truncated"] <= 1, lengths
    short = measure(tmp_path / "short", llama, num_fewshot=0)
    assert short["winogrande_truncated"] == 0


def test_no_item_is_among_its_own_fewshot_examples(tmp_path: Path) -> None:
    settings = suite(num_fewshot=5)
    for task, field in (("hellaswag", "query"), ("winogrande", "sentence")):
        loaded = load_task(task_manager([task]), settings, task, tmp_path)["tasks"][task]
        loaded.build_all_requests(rank=0, world_size=1)
        for request in loaded.instances:
            question = (
                request.doc[field].split("_")[0] if task == "winogrande" else request.doc[field]
            )
            solved = request.args[0].rsplit("\n\n", 1)[0].split("\n\n")
            assert len(solved) == 5
            assert request.args[0].count(question) == 1 or task == "winogrande"
            if task == "winogrande":
                answer = (
                    request.doc["option1"]
                    if request.doc["answer"] == "1"
                    else request.doc["option2"]
                )
                assert request.doc["sentence"].replace("_", answer) not in solved


def test_an_unavailable_model_gives_a_one_line_error(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(CheckpointError, match="nobody/nothing: cannot be loaded from the Hugging"):
        measure(tmp_path, Path("nobody/nothing"), tasks=["piqa"])
    with pytest.raises(DataError, match=r"piqa: baber/piqa .* set `benchmarks` to"):
        measure(tmp_path, llama, tasks=["piqa"], data="hub")
    damaged = write_llama(tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match=r"damaged: cannot be loaded \("):
        measure(tmp_path, damaged, tasks=["piqa"])


@pytest.mark.parametrize(
    ("named", "why"),
    [({}, "has no bos_token or eos_token"), ({"bos_token": "<|endoftext|>"}, "has no eos_token")],
)
def test_a_tokenizer_without_special_tokens_gives_a_one_line_error(
    named: dict[str, str], why: str, tmp_path: Path, llama: Path
) -> None:
    folder = shutil.copytree(llama, tmp_path / "endless")
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind | named))
    request = Instance("generate_until", {}, ("a girl", {"until": ["."], "max_gen_toks": 2}), 0)
    with pytest.raises(CheckpointError, match=f"endless: its tokenizer {why}") as refusal:
        wrap_for_lm_eval(suite(), elsewhere(folder, tmp_path)).generate_until([request])
    assert "\n" not in str(refusal.value)


@pytest.mark.slow
def test_the_result_of_an_external_model_has_no_training_job(tmp_path: Path, llama: Path) -> None:
    config = suite(tasks=["piqa"], limit=4)
    slice = EvaluationConfig(
        scale="unit",
        run="mine",
        suite="words",
        config=config,
        pretrained=PretrainedModel(name=str(llama)),
    )
    output = tmp_path / "words.json"
    details = evaluate_as_job(slice, output, seed=0)
    result = read_result(output)
    assert (result.run, result.seed, result.settings["upstream"]) == ("mine", 0, [])
    assert result.settings["config"]["data"] == "builtin"
    assert result.metrics["average"] == result.metrics["piqa"]
    assert len(samples(details, "piqa")) == 4
    summary = json.loads((details / "piqa.json").read_text())
    assert summary["lm_eval_version"] and summary["config"]["metadata"]["version"] == 1.0
    assert gettempdir() not in json.dumps(summary) and "site-packages" not in json.dumps(summary)


@pytest.mark.slow
def test_accuracies_come_with_scores_per_item(tmp_path: Path, llama: Path) -> None:
    measured = evaluation.measure(suite(limit=6), elsewhere(llama, tmp_path))
    assert {*measured.per_item} == {*TASKS, "average"}
    assert sizes(measured.per_item[TASKS[0]]) == [(TASKS[0], 6)]
    assert sizes(measured.per_item["average"]) == [(task, 6) for task in TASKS]


def test_the_share_of_the_most_common_answer(tmp_path: Path, llama: Path) -> None:
    scores = [(-1.0, -2.0, -3.0), (-1.0, -3.0, -2.0), (-3.0, -1.0, -2.0)]  # answers 0, 0 and 1
    items = [
        {"filtered_resps": [[score, False] for score in item_scores]} for item_scores in scores
    ]
    assert evaluation._most_common_count(items, "acc") == 2
    metrics = measure(tmp_path, llama, tasks=["mnli"])
    most_common = evaluation._most_common_count(samples(tmp_path / "details", "mnli"), "acc")
    assert metrics["mnli_most_common_share"] == most_common / 21


def test_acc_and_acc_norm_choose_different_answers() -> None:
    longer = {"arguments": [["q", " no"], ["q", " by far the longest"], ["q", " "]]}
    sample = longer | {"filtered_resps": [[-2.0, True], [-3.0, False], [-0.1, False]]}
    assert [evaluation._model_answer(sample, metric) for metric in ("acc", "acc_norm")] == [2, 1]


def test_a_suite_can_set_another_metric(tmp_path: Path, llama: Path) -> None:
    plain = measure(tmp_path / "acc", llama, tasks=["arc_easy"])
    normed = measure(tmp_path / "norm", llama, tasks=["arc_easy"], metrics={"arc_easy": "acc_norm"})
    outcomes = samples(tmp_path / "norm" / "details", "arc_easy")
    assert normed["arc_easy"] == pytest.approx(sum(o["acc_norm"] for o in outcomes) / len(outcomes))
    for item in outcomes:
        answer = evaluation._model_answer(item, "acc_norm")
        assert (answer == int(item["target"])) == item["acc_norm"]
    assert (
        normed["arc_easy_most_common_share"]
        == evaluation._most_common_count(outcomes, "acc_norm") / 20
    )
    assert plain["arc_easy"] == pytest.approx(sum(o["acc"] for o in outcomes) / len(outcomes))
    with pytest.raises(ValueError, match="piqa are not among"):
        suite(tasks=["arc_easy"], metrics={"piqa": "acc_norm"})


def test_one_item_has_no_standard_error(tmp_path: Path, llama: Path) -> None:
    path = copy_items(tmp_path / "items", "arc_easy")
    path.write_text(path.read_text().partition("\n")[0] + "\n")
    metrics = measure(tmp_path, llama, tasks=["arc_easy"], data=str(tmp_path / "items"))
    assert metrics["arc_easy_stderr"] is None and metrics["average_stderr"] is None
    assert metrics["average"] == metrics["arc_easy"]
