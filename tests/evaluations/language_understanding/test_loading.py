"""Loading of lm-eval tasks, and one-line errors for damaged inputs."""

import json
from pathlib import Path

import pytest
import torch
from small_language_models import copy_items, suite, write_llama

from difftransformer.config.run import PretrainedModel
from difftransformer.errors import DataError
from difftransformer.evaluation.context import PretrainedContext
from difftransformer.evaluations.language_understanding import measure as evaluation
from difftransformer.evaluations.language_understanding.loading import load_task, task_manager


def eval_context(folder: Path) -> PretrainedContext:
    llama = write_llama(folder / "llama")
    (folder / "details").mkdir()
    model = PretrainedModel(name=str(llama))
    return PretrainedContext(model, torch.device("cpu"), folder / "details", folder / "state")


def test_programs_are_not_run_unless_that_is_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = suite(tasks=["mbpp_plus", "gsm8k"], max_new_tokens=4, limit=2)
    with caplog.at_level("WARNING"):
        measured = evaluation.measure(settings, eval_context(tmp_path))
    (warning,) = (record.message for record in caplog.records if "mbpp_plus" in record.message)
    assert "run_generated_code: true" in warning
    assert not any(name.startswith("mbpp_plus") for name in measured.metrics)
    assert measured.metrics["average"] == measured.metrics["gsm8k"]
    with pytest.raises(ValueError, match=r"no task is left .*mbpp_plus would run programs"):
        suite(tasks=["mbpp_plus"])


def test_allowed_programs_are_run_without_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.chdir(tmp_path)
    allowed = suite(tasks=["mbpp_plus"], run_generated_code=True, max_new_tokens=4, num_fewshot=0)
    loaded = load_task(task_manager(["mbpp_plus"]), allowed, "mbpp_plus", tmp_path)
    task = loaded["tasks"]["mbpp_plus"]
    item = task.eval_docs[0]
    for code, score in [
        (item["code"], 1.0),
        ("def double(a): return a", 0.0),
        (f"import os\nassert 'HF_TOKEN' not in os.environ\n{item['code']}", 1.0),
    ]:
        assert task.process_results(item, [[code]])["pass_at_1"] == score


def test_ifeval_scores_an_answer_the_same_each_time(tmp_path: Path) -> None:
    """langdetect, which guesses the language of an answer, is random unless it has a seed."""
    loaded = load_task(task_manager(["ifeval"]), suite(tasks=["ifeval"]), "ifeval", tmp_path)
    item = {
        "key": 1, "prompt": "p", "instruction_id_list": ["change_case:english_lowercase"],
        "kwargs": [{}],
    }  # fmt: skip
    task = loaded["tasks"]["ifeval"]
    scores = [task.process_results(item, [" 1to to "]) for _ in range(40)]
    assert len({score["prompt_level_strict_acc"] for score in scores}) == 1


def test_ifeval_sentence_counts_need_nltk_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nltk.data.path", [])
    path = copy_items(tmp_path, "ifeval")
    item = {
        "key": 99, "prompt": "p", "instruction_id_list": ["length_constraints:number_sentences"],
        "kwargs": [{"relation": "at least", "num_sentences": 2}],
    }  # fmt: skip
    path.write_text(path.read_text() + json.dumps(item) + "\n")
    settings = suite(tasks=["ifeval"], data=str(tmp_path))
    with pytest.raises(DataError, match=r"number_sentences with nltk's punkt_tab, .*downloader"):
        load_task(task_manager(["ifeval"]), settings, "ifeval", tmp_path / "cache")


def test_a_folder_must_have_exactly_the_subjects_of_the_group(tmp_path: Path) -> None:
    path = copy_items(tmp_path, "mmlu")
    settings, manager = suite(tasks=["mmlu"], data=str(tmp_path)), task_manager(["mmlu"])
    with pytest.raises(DataError, match=r"has no items of mmlu_abstract_algebra, .* the mean over"):
        load_task(manager, settings, "mmlu", tmp_path / "cache")
    path.write_text(path.read_text().replace("astronomy", "astrology"))
    with pytest.raises(DataError, match="line 1: field 'subject' is 'astrology', but lm-eval"):
        load_task(manager, settings, "mmlu", tmp_path / "cache")


def test_items_with_a_byte_order_mark_and_null_columns_are_read(tmp_path: Path) -> None:
    """Spreadsheets and merged tables are exported like this."""
    path = copy_items(tmp_path, "piqa")
    first, *rest = path.read_text().splitlines()
    others = {"choices": None, "sentence": None, "endings": None, "hypothesis": None}
    lines = [json.dumps(json.loads(first) | others), *rest]
    path.write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    settings = suite(tasks=["piqa"], data=str(tmp_path))
    loaded = load_task(task_manager(["piqa"]), settings, "piqa", tmp_path / "cache")
    goals = [json.loads(line)["goal"] for line in lines]
    assert [item["goal"] for item in loaded["tasks"]["piqa"].eval_docs] == goals
