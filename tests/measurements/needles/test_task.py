"""Needle tasks in English under lm-eval's own evaluator, with lm-eval models that are scripted."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.evaluator import evaluate
from small_evaluation import metrics_of, model_config, scorer, subject

from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.generation import Generator
from difftransformer.evaluation.retrieval.prompts import PromptBuilder, open_builder
from difftransformer.evaluation.retrieval.settings import Cell
from difftransformer.measurements.needles.measure import NeedleTask, SharingModel, measure
from difftransformer.measurements.needles.settings import Suite
from difftransformer.models.transformer import Transformer

LENGTH, CELL = 300, Cell(4, 2, 300, 25)
PROMPTS = {"format": "text", "lengths": [LENGTH], "samples": 3, "depths": [0, 100]}


class Reader(LM):
    """Reads the prompt and answers as it was written to."""

    def __init__(self, answer: Callable[[dict[str, str], list[str]], str]) -> None:
        super().__init__()
        self._answer = answer

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return [self._read(request.args[0]) for request in requests]

    def _read(self, prompt: str) -> str:
        numbers = dict(re.findall(r"special magic (\w+) number is: (\d+)", prompt))
        asked = re.findall(r"numbers? for ([\w ,]+)\?", prompt)[-1]
        return self._answer(numbers, re.split(r", | and ", asked))

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError


def all_of_them(numbers: dict[str, str], asked: list[str]) -> str:
    return "They are " + " and ".join(numbers[city] for city in asked)


def the_first(numbers: dict[str, str], asked: list[str]) -> str:
    return numbers[asked[0]]


def another(numbers: dict[str, str], asked: list[str]) -> str:
    return next(number for city, number in numbers.items() if city not in asked)


@pytest.fixture(scope="module")
def builder(english: PackedDataset) -> PromptBuilder:
    suite = Suite(kind="needles", pairs=[[4, 2]], format="text", lengths=[LENGTH])
    return open_builder(suite, english)


def text_model(english: PackedDataset) -> Transformer:
    config = model_config(english.manifest.vocab_size, max_positions=LENGTH)
    return Transformer.build(config, "sdpa", seed=0).eval()


@pytest.mark.parametrize(("answer", "score"), [(all_of_them, 1), (the_first, 0.5), (another, 0)])
def test_lm_eval_scores_what_was_answered(
    answer: Callable[[dict[str, str], list[str]], str], score: float, builder: PromptBuilder
) -> None:
    task = NeedleTask(CELL, (builder.prompt(CELL, i) for i in range(5)), builder)
    found = evaluate(Reader(answer), {"tasks": {task.task_name: task}}, bootstrap_iters=0)
    assert found is not None and task.task_name == "needles_n4_r2_l300_d25"
    assert found["results"][task.task_name]["accuracy,none"] == score
    assert len(found["samples"][task.task_name]) == 5


def test_an_answer_ends_at_an_empty_line_or_the_end_of_text(
    builder: PromptBuilder, english: PackedDataset
) -> None:
    model = SharingModel(Generator(scorer(text_model(english)), 64), builder)
    task = NeedleTask(CELL, [builder.prompt(CELL, 0)], builder)
    task.build_all_requests()
    request = model.request(task.instances[0])
    assert request.prompt[0] == builder.end and request.new_tokens == 48
    assert request.prompt[1:] == builder.ids(task.instances[0].args[0])[1:]
    lines = builder.tokenizer.encode("one\n\ntwo", add_special_tokens=False).ids
    ends = [request.ended(lines[: stop + 1]) for stop in range(len(lines))]
    assert not ends[0] and ends[-1] and request.ended([builder.end or 0])
    assert model._ends(task.instances[0]).text(lines) == "one"


def test_the_suite_runs_in_english(english: PackedDataset, tmp_path: Path) -> None:
    about = replace(subject(scorer(text_model(english)), english), details=tmp_path)
    found = metrics_of(
        measure(
            Suite(kind="needles", pairs=[[2, 2]], max_new_tokens=5, chunk=100, **PROMPTS), about
        )
    )
    assert found["asked_n2_r2"] == 12 and found["accuracy_n2_r2"] == 0
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 6 and all(len(line["target"]) == 2 for line in lines)
