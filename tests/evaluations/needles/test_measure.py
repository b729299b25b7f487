"""Needle suites: scripted models get the accuracy they were written for."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import (
    RECALL,
    Remembering,
    eval_context,
    metrics_of,
    model_config,
    scorer,
    sizes,
)
from torch import Tensor

from difftransformer.convert.checkpoint import load_model
from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary
from difftransformer.evaluation.context import Metrics
from difftransformer.evaluation.generation import StopCriteria
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluations.needles.measure import measure
from difftransformer.evaluations.needles.settings import Suite
from difftransformer.models.transformer import Transformer

VOCABULARY = RecallVocabulary.of(RECALL)


def suite(**changes: Any) -> Suite:
    settings = {"pairs": [[1, 1], [2, 2], [4, 2]], "samples": 6}
    return Suite(kind="needles", **(settings | changes))


def value_of(offset: int) -> Callable[[Tensor], Tensor]:
    """After a key, the value of the needle that stands ``offset`` needles behind its own."""

    def rule(tokens: Tensor) -> Tensor:
        out = torch.zeros_like(tokens)
        for row, answers in zip(tokens.tolist(), out, strict=True):
            keys = [t for t in range(len(row) - 1) if row[t] in VOCABULARY.keys]
            if row[-1] in VOCABULARY.keys:
                needle = next(i for i, t in enumerate(keys) if row[t] == row[-1])
                answers[-1] = row[keys[(needle + offset) % len(keys)] + 1]
        return out

    return rule


@pytest.fixture
def dataset(recall: Path) -> PackedDataset:
    return PackedDataset.open(recall)


def run(model: torch.nn.Module, dataset: PackedDataset, details: Path, **changes: Any) -> Metrics:
    context = replace(eval_context(scorer(model), dataset), details=details)
    return metrics_of(measure(suite(**changes), context))


def test_a_model_that_answers_right_and_one_that_takes_another_needle(
    dataset: PackedDataset, tmp_path: Path
) -> None:
    right = run(Remembering(value_of(0), RECALL.vocab_size), dataset, tmp_path)
    for name in ("n1_r1", "n2_r2", "n4_r2", "n4_r2_d0", "n4_r2_d25", "n4_r2_d100"):
        assert right[f"accuracy_{name}"] == 1.0
    assert (right["total_n4_r2"], right["correct_n4_r2"]) == (60, 60)
    assert (right["total_n4_r2_d25"], right["total_n1_r1"]) == (12, 30)
    wrong = run(
        Remembering(value_of(1), RECALL.vocab_size), dataset, tmp_path, pairs=[[2, 2], [4, 2]]
    )
    assert (wrong["accuracy_n2_r2"], wrong["accuracy_n4_r2"], wrong["correct_n4_r2"]) == (0, 0, 0)


def test_half_of_a_sample_is_half_a_point(dataset: PackedDataset, tmp_path: Path) -> None:
    def first_only(tokens: Tensor) -> Tensor:
        """Right about needles in the first half of the haystack."""
        firsts = torch.tensor([row.index(row[-1]) for row in tokens.tolist()])
        return value_of(0)(tokens) * (firsts < tokens.shape[1] // 2)[:, None]

    metrics = run(Remembering(first_only, RECALL.vocab_size), dataset, tmp_path, pairs=[[4, 2]])
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 60 and len({line["prompt_sha256"] for line in lines}) > 50
    correct = [right for line in lines for right in line["correct"]]
    assert metrics["accuracy_n4_r2"] == sum(correct) / 60
    assert 0 < sum(correct) < 60
    assert all(line["correct"] == [line["target"][0] in line["answer"]] for line in lines)
    assert {(line["needles"], line["queried"], line["length"]) for line in lines} == {(4, 2, None)}


def test_lengths_have_metrics_of_their_own(dataset: PackedDataset, tmp_path: Path) -> None:
    model = Remembering(value_of(0), RECALL.vocab_size)
    changes: dict[str, Any] = {"pairs": [[2, 1]], "lengths": [20, 40], "depths": [0, 50]}
    metrics = run(model, dataset, tmp_path, **changes)
    assert metrics["total_n2_r1_l20_d50"] == 6 and metrics["total_n2_r1_l40"] == 12
    assert metrics["total_n2_r1_d50"] == 12 and metrics["total_n2_r1"] == 24


def test_long_prompts_that_share_a_context_share_its_cache(
    recall_run: Path, dataset: PackedDataset, tmp_path: Path
) -> None:
    chunk = RECALL.haystack_length  # a batch does not fit
    model = load_model(recall_run)
    metrics = run(model, dataset, tmp_path, pairs=[[2, 2]], depths=[100], chunk=chunk)
    prompt_positions = 6 * 2 * (RECALL.haystack_length + 1)
    assert metrics["prompt_positions"] == prompt_positions
    # The second question of a sample computes its own token alone.
    assert metrics["computed_positions"] <= prompt_positions // 2 + 6


def test_every_model_gets_the_same_prompts(dataset: PackedDataset, tmp_path: Path) -> None:
    prompts = []
    for rule in (value_of(0), value_of(1)):
        run(Remembering(rule, RECALL.vocab_size), dataset, tmp_path)
        lines = (tmp_path / "samples.jsonl").read_text().splitlines()
        prompts.append([json.loads(line)["prompt_sha256"] for line in lines])
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "text", "lengths": [30]}, "dataset of recall rows"),
        ({"lengths": [41]}, "a context of 41 is longer than the model's positions"),
        ({"pairs": [[9, 1]]}, "9 needles need different keys and values, the dataset has 8"),
        ({"lengths": [10]}, "need a haystack of 12 tokens, got 8"),
    ],
)
def test_prompts_that_do_not_fit_give_a_one_line_reason(
    changes: dict[str, Any], message: str
) -> None:
    line = suite(**changes).incompatibility(40, RECALL) or ""
    assert message in line and "\n" not in line


def test_accuracies_have_scores_by_haystack(dataset: PackedDataset, tmp_path: Path) -> None:
    def by_first_filler(tokens: Tensor) -> Tensor:
        """Right in every other haystack, whatever is asked there."""
        return value_of(0)(tokens) * (tokens[:, 1:2] % 2)

    model = scorer(Remembering(by_first_filler, RECALL.vocab_size))
    metrics = measure(suite(), replace(eval_context(model, dataset), details=tmp_path))
    assert {*metrics.per_item} == {name for name in metrics.metrics if name.startswith("accuracy_")}
    assert {*map(tuple, map(sizes, metrics.per_item.values()))} == {(("", suite().samples),)}
    assert 0 < (metrics.metrics["accuracy_n4_r2"] or 0) < 1


def test_the_suite_runs_in_english_until_an_empty_line(
    english: PackedDataset, tmp_path: Path
) -> None:
    config = model_config(english.manifest.vocab_size, max_positions=300)
    model = Transformer.build(config, "sdpa", seed=0).eval()
    settings = {"format": "text", "lengths": [300], "depths": [0, 100], "samples": 3, "chunk": 100}
    metrics = run(model, english, tmp_path, pairs=[[2, 2]], **settings)
    assert metrics["total_n2_r2"] == 12 and metrics["accuracy_n2_r2"] == 0
    lines = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(lines) == 6 and all(len(line["target"]) == 2 for line in lines)
    builder = open_builder(suite(**settings), english)
    ends = StopCriteria(builder.tokenizer, builder.eos_id, builder.until)
    tokens = builder.tokenizer.encode("one\n\ntwo", add_special_tokens=False).ids
    assert (
        not ends.should_stop(tokens[:1])
        and ends.should_stop(tokens)
        and ends.should_stop([builder.eos_id or 0])
    )
    assert ends.text(tokens) == "one"
