"""Damaged items in files give a one-line error."""

import gzip
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import lm_eval.tasks
import pytest
import yaml
from fake_dex import DEX_TASKS
from small_language_models import copy_items, suite
from spoiling import zeroed

from difftransformer.data.arithmetic import held_out_problems
from difftransformer.errors import DataError
from difftransformer.evaluations.language_understanding import tasks
from difftransformer.evaluations.language_understanding.item_checks import check_items
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS, task_files
from difftransformer.provenance.fingerprint import named_digest


def items(task: str) -> list[dict]:
    (path,) = task_files(task, "builtin").values()
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("task", [task for task in LANGUAGE_TASKS if task not in DEX_TASKS])
def test_our_items_of_the_six_benchmarks_are_valid_and_distinct(task: str) -> None:
    check_items(task, task_files(task, "builtin")["test"])
    task_items, spec = items(task), LANGUAGE_TASKS[task]
    assert len({json.dumps({**item, "key": 0, "task_id": 0}) for item in task_items}) == len(
        task_items
    )
    assert {item["subject"] for item in task_items if spec.subjects} <= set(spec.subjects)
    if task == "gsm8k":
        generated = held_out_problems("gsm8k", len(task_items), 20_003)
        assert task_items == [problem.item for problem in generated]
    if task == "mmlu":
        assert set(Counter(item["answer"] for item in task_items).values()) == {5}


@pytest.mark.parametrize("task", ["winogrande", "gsm8k"])
def test_a_metric_that_lm_eval_lacks_is_refused(task: str) -> None:
    with pytest.raises(ValueError, match=f"metrics: .*{task} .*acc"):
        suite(tasks=[task], metrics={task: "acc_norm"})


@pytest.mark.parametrize("task", LANGUAGE_TASKS)
def test_task_specs_match_lm_eval(task: str) -> None:
    spec, bundled = LANGUAGE_TASKS[task], Path(lm_eval.tasks.__file__).parent
    texts = [path.read_text() for path in (bundled / spec.folder).glob("*[!0-9]*")
             if path.is_file() and path.suffix in ("", ".yaml")]  # fmt: skip
    joined = "\n".join(texts)
    for member in spec.subtasks.values() or [task]:
        assert re.search(rf'^"?task"?: "?{member}"?$|- {member}\b', joined, re.MULTILINE), member
    if spec.subject_prefix == "mmlu":
        assert len(spec.subjects) == len(list((bundled / spec.folder).glob("mmlu_*.yaml")))
    if spec.subject_prefix == "agieval":
        group = yaml.safe_load((bundled / spec.folder / "agieval_en.yaml").read_text())
        assert group["task"] == list(spec.subtasks.values())
    if not spec.max_gen_toks:
        assert spec.has_acc_norm == ("- metric: acc_norm" in joined) or spec.subjects
    if spec.num_fewshot:
        assert f"num_fewshot: {spec.num_fewshot}" in joined
    if spec.filter != "none":
        assert f'name: "{spec.filter}"' in joined


@pytest.mark.parametrize("task", DEX_TASKS)
def test_our_items_are_complete_distinct_and_balanced(task: str) -> None:
    check_items(task, task_files(task, "builtin")["validation"])
    task_items = items(task)
    assert len(task_items) == (21 if task == "mnli" else 20)
    assert len({json.dumps({**item, "id": 0, "ind": 0, "idx": 0}) for item in task_items}) == len(
        task_items
    )
    answers = Counter(
        str(item.get("answerKey", item.get("label", item.get("answer")))) for item in task_items
    )
    assert len(set(answers.values())) == 1, answers


def test_a_changed_builtin_item_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(tasks._BUILTIN, tmp_path / "items")
    monkeypatch.setattr(tasks, "_BUILTIN", copy)
    path = task_files("piqa", "builtin")["validation"]
    zeroed(path)
    with pytest.raises(DataError, match="checksum mismatch; install"):
        task_files("piqa", "builtin")


def test_the_hub_has_no_files_and_a_folder_takes_either_ending(tmp_path: Path) -> None:
    assert suite(data="hub").files() == {}
    path = copy_items(tmp_path, "piqa")
    other = path.with_name("train.jsonl.gz")
    other.write_bytes(gzip.compress(path.read_bytes()))
    settings = suite(tasks=["piqa"], data=str(tmp_path))
    assert set(settings.files().values()) == {path, other}
    before = named_digest(settings.files().items())
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    assert named_digest(settings.files().items()) != before


@pytest.mark.parametrize(
    ("task", "line", "problem"),
    [
        ("piqa", '{"goal": "g", "sol1": "a", "label": 0}', "line 21: field 'sol2' is missing"),
        ("piqa", '{"goal": "g", "sol1": "a", "sol2": "b", "label": 2}', "'label' is 2, not 0 or 1"),
        ("piqa", '{"goal": "\\ud83d", "sol1": "a", "sol2": "b", "label": 0}', "21 has half a"),
        ("boolq", "{", "line 21: not JSON"),
        ("copa",
         '{"premise": "p", "choice1": "a", "choice2": "b", "question": "why", "label": 0}',
         "field 'question' is 'why', not 'cause' or 'effect'"),
        ("mnli", '{"premise": "p", "hypothesis": "h", "label": -1}', "'label' is -1, not 0 or"),
        ("wic", '{"sentence1": "ab", "sentence2": "b", "start1": 1, "end1": 3, "label": 0}',
         "'start1' and 'end1' are outside sentence1"),
        ("wsc",
         '{"text": "a b", "span1_text": "a", "span2_text": "b", "span2_index": 2, "label": 0}',
         "'span2_index' is 2, outside its text"),
        ("arc_easy",
         '{"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": 1}',
         "line 21: a field has the wrong type for arc_easy"),
        ("arc_easy",
         '{"question": "q", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "B"}',
         "'answerKey' 'B' is not one of"),
        ("hellaswag", "[]", "line 21: field 'activity_label' is missing"),
        ("openbookqa", '{"question_stem": "q", "choices": {"text": ["a"]}, "answerKey": "A"}',
         "field 'choices.label' is missing"),
        ("mmlu", '{"subject": "anatomy", "question": "q", "choices": ["a"], "answer": 0}',
         "field 'choices' has 1 answers, not 4"),
        ("agieval_en", '{"subject": "sat_en", "query": "q", "choices": ["a"], "gold": [1]}',
         "field 'gold' is [1], not among 0 to 0"),
        ("agieval_en", '{"subject": "sat_en", "query": "q"}', "or 'choices' and 'gold'"),
        ("ifeval", '{"key": 1, "prompt": "p", "instruction_id_list": ["a"], "kwargs": [{}, {}]}',
         "'instruction_id_list' and 'kwargs' differ in length"),
        ("gsm8k", '{"question": "q", "answer": "3"}', "does not end in '#### ' and a number"),
        ("mbpp_plus", '{"task_id": 1, "prompt": "p", "code": "c", "test_list": ["assert f()"]}',
         "field 'test_list' has 1 tests, not 3"),
        ("winogrande", '{"sentence": "none", "option1": "a", "option2": "b", "answer": "1"}',
         "field 'sentence' has no blank"),
    ],
)  # fmt: skip
def test_a_damaged_item_names_file_line_and_field(
    task: str, line: str, problem: str, tmp_path: Path
) -> None:
    path = copy_items(tmp_path, task)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError) as raised:
        check_items(task, path)
    assert problem in str(raised.value) and str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_without_the_task_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        task_files("piqa", str(tmp_path / "nowhere"))
    with pytest.raises(
        DataError, match=r"piqa: contains neither validation\.jsonl nor test\.jsonl"
    ):
        task_files("piqa", str(tmp_path))
    path = tmp_path / "validation.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" * 99)[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        check_items("piqa", path)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match="contains no items"):
        check_items("piqa", tmp_path / "empty.jsonl")
