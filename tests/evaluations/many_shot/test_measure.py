"""The suite of many-shot learning: scripted models, real sets, and user errors."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_evaluation import (
    ITEMS,
    Remembering,
    eval_context,
    metrics_of,
    model_config,
    scorer,
    sizes,
    write_labeled_items,
)
from small_many_shot import suite
from tokenizers import Tokenizer, pre_tokenizers
from torch import Tensor

from difftransformer.data.packed import PackedDataset
from difftransformer.data.rows import row_words
from difftransformer.errors import DataError, UserError
from difftransformer.evaluation.context import Metrics
from difftransformer.evaluation.generation import open_tokenizer
from difftransformer.evaluations.many_shot.examples import generated_set, labeled_set
from difftransformer.evaluations.many_shot.label_decoding import LabelTrie
from difftransformer.evaluations.many_shot.measure import Draw, PromptEncoder, measure
from difftransformer.evaluations.many_shot.settings import Suite
from difftransformer.evaluations.many_shot.tasks import CLASSIFICATION_TASKS
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.fingerprint import named_digest


@pytest.fixture
def items(tmp_path: Path) -> PackedDataset:
    return PackedDataset.open(write_labeled_items(tmp_path / "items"))


def run(model: torch.nn.Module, dataset: PackedDataset, details: Path, **changes: Any) -> Metrics:
    settings = suite(**changes)
    return metrics_of(
        measure(settings, replace(eval_context(scorer(model), dataset), details=details))
    )


def last_demonstration(tokens: Tensor) -> Tensor:
    """Behind an item, the label of the demonstration before it."""
    out = torch.zeros_like(tokens)
    out[0, -1] = tokens[0, -3]
    return out


def same_class(tokens: Tensor) -> Tensor:
    """Behind an item, the label of a demonstration of its class."""
    row = tokens[0].tolist()
    out = torch.zeros_like(tokens)
    for start in range(0, len(row) - 3, 3):
        if (row[start] - 8) // 3 == (row[-1] - 8) // 3:
            out[0, -1] = row[start + 2]
    return out


def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def test_a_model_with_a_known_order_bias_has_the_known_spread(
    items: PackedDataset, tmp_path: Path
) -> None:
    biased = Remembering(last_demonstration, ITEMS.vocab_size)
    metrics = run(biased, items, tmp_path, order_seeds=8, demonstrations=[9])
    lines = answers(tmp_path)
    shares = []
    for seed in range(8):
        seed_lines = [line for line in lines if line["order_seed"] == seed]
        (answer,) = {
            line["answer"] for line in seed_lines
        }  # the last demonstration's, for all items
        shares.append(sum(line["label"] == answer for line in seed_lines) / 20)
    assert [metrics[f"accuracy_n9_o{seed}"] for seed in range(8)] == shares
    assert metrics["accuracy_n9"] == pytest.approx(sum(shares) / 8)
    labels = {line["label"] for line in lines}
    by_label = {label: sum(line["label"] == label for line in lines) / 160 for label in labels}
    assert set(shares) <= set(by_label.values()) and max(shares) > min(shares)


def test_a_model_that_reads_the_demonstrations_is_right_in_any_order(
    items: PackedDataset, tmp_path: Path
) -> None:
    reader = Remembering(same_class, ITEMS.vocab_size)
    for order in ("random", "alternating"):
        metrics = run(reader, items, tmp_path, order=order, draws=2)
        assert [metrics[f"accuracy_n{n}"] for n in (3, 6, 9)] == [1.0] * 3
        assert [metrics[f"accuracy_n9_o{seed}"] for seed in range(3)] == [1.0] * 3
        assert metrics["total_n9"] == metrics["correct_n9"] == 3 * 2 * 20
        assert metrics["chance"] == pytest.approx(1 / 3)
    assert len(answers(tmp_path)) == 3 * 3 * 2 * 20


def test_only_demonstrations_have_word_noise() -> None:
    words = row_words(ITEMS)
    clean, noisy = (
        generated_set(suite(demonstrations=[300], word_noise=share), ITEMS, words, 0)
        for share in (0.0, 0.4)
    )
    assert noisy.labels == clean.labels and noisy.test == clean.test
    pairs = zip(noisy.train, clean.train, strict=True)
    assert all(example.label == other.label for example, other in pairs)
    texts = [
        [word for sample in labeled.train for word in sample.text.split()]
        for labeled in (noisy, clean)
    ]
    moved = [word != other for word, other in zip(*texts, strict=True)]
    assert len(moved) == 600 and sum(moved) / 600 == pytest.approx(0.4, abs=0.07)
    classes = [{word[:2] for word in words} for words in texts]
    assert classes[0] == classes[1]


def test_orders_differ_but_demonstrations_and_items_do_not(
    items: PackedDataset, tmp_path: Path
) -> None:
    rows: list[list[int]] = []

    def record(tokens: Tensor) -> Tensor:
        rows.append(tokens[0].tolist())
        return tokens

    run(Remembering(record, ITEMS.vocab_size), items, tmp_path, demonstrations=[9], test_items=2)
    prompts = {tuple(row[:27]) for row in rows if len(row) >= 29}
    triples = [sorted(zip(*[iter(row)] * 3, strict=True)) for row in prompts]
    assert len(prompts) == 3 and triples[0] == triples[1] == triples[2]
    assert {tuple(row[27:29]) for row in rows if len(row) >= 29} != set()


def test_shared_positions_are_counted(items: PackedDataset, tmp_path: Path) -> None:
    model = Transformer.build(model_config(ITEMS.vocab_size), "sdpa", 0).eval()
    metrics = run(model, items, tmp_path, demonstrations=[9], order_seeds=1)
    assert metrics["computed_positions"] == 27 + 20 * 2
    assert metrics["prompt_positions"] == 20 * (27 + 2)


def test_demonstrations_beyond_the_context(items: PackedDataset, tmp_path: Path) -> None:
    reader = Remembering(same_class, ITEMS.vocab_size)  # 40 positions: 12 items of 3 and one of 2
    fitting = run(reader, items, tmp_path, demonstrations=[3, 12, 15], context_fit="skip")
    assert {"accuracy_n3", "accuracy_n12"} <= set(fitting) and "accuracy_n15" not in fitting
    largest = run(reader, items, tmp_path, demonstrations=[3, 12, 15], context_fit="largest")
    assert "accuracy_n12" in largest and "accuracy_n3" not in largest
    line = suite(demonstrations=[3, 12, 15]).incompatibility(40, ITEMS)
    assert "take 47 positions, the model has max_positions 40" in str(line)


# --- labeled sets in files ---


def trec(folder: Path, **splits: list[Any]) -> Path:
    (folder / "trec").mkdir(parents=True)
    for split, rows in splits.items():
        text = "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)
        (folder / "trec" / f"{split}.jsonl").write_text(text)
    return folder


def question(label: Any, text: str = "What is  this ?") -> dict[str, Any]:
    return {"text": text, "coarse_label": label, "fine_label": 0}


SIX = [question(label) for label in range(6)]


def files(folder: Path, **changes: Any) -> Suite:
    settings = {"data": str(folder), "classes": None, "demonstrations": [6]}
    return suite(**(settings | changes))


def test_a_set_in_a_folder_is_read_with_its_labels_in_words(tmp_path: Path) -> None:
    labeled = labeled_set(files(trec(tmp_path, train=SIX, test=SIX[:1])))
    assert labeled.labels == sorted(CLASSIFICATION_TASKS["trec"].labels)
    assert labeled.test == [("What is this ?", "abbreviation")] and len(labeled.train) == 6


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": SIX}, "trec: holds no test.jsonl"),
        ({"train": SIX, "test": []}, "test.jsonl: holds no test items"),
        ({"train": SIX[:5], "test": SIX}, "has 5 labels, TREC has 6"),
        ({"train": [*SIX, {"text": "x"}], "test": SIX}, "line 7: field 'coarse_label' is missing"),
        ({"train": [*SIX, question(6)], "test": SIX}, "line 7: field 'coarse_label' is 6, not 0"),
        ({"train": [*SIX, question(1, "")], "test": SIX}, "line 7: field 'text' is missing"),
        ({"train": [*SIX, "{broken\n"], "test": SIX}, "line 7: not JSON"),
        ({"train": [*SIX, '"text"\n'], "test": SIX}, "line 7: not a mapping"),
    ],
)
def test_a_damaged_set_gives_a_one_line_error(
    splits: dict[str, list[Any]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        labeled_set(files(trec(tmp_path, **splits)))
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_named_when_planning(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: no such folder"):
        files(tmp_path / "nowhere").files()
    assert suite().files() == files(tmp_path, data="hub").files() == {}


def test_edited_items_change_the_digest(tmp_path: Path) -> None:
    settings = files(trec(tmp_path, train=SIX, test=SIX[:1]))
    before = named_digest(settings.files().items())
    (tmp_path / "trec" / "test.jsonl").write_text(json.dumps(question(1)) + "\n")
    assert named_digest(settings.files().items()) != before and not suite().files()


def test_benchmarks_are_for_sets_that_are_not_generated() -> None:
    assert Suite.takes_benchmarks({"data": "hub"}, "a/folder")
    assert not Suite.takes_benchmarks({"data": "hub"}, "builtin")
    assert not Suite.takes_benchmarks({"data": "generated"}, "a/folder")


def test_a_labeled_set_is_measured_in_text(english: PackedDataset, tmp_path: Path) -> None:
    rows = [question(label, f"{word} {i}") for i in range(4) for label, word in enumerate("abcdef")]
    folder = trec(tmp_path / "sets", train=rows, test=rows)
    model = scorer(
        Transformer.build(model_config(english.manifest.vocab_size, 900), "sdpa", 0).eval()
    )
    context = replace(eval_context(model, english), details=tmp_path)
    settings = files(folder, test_items=2, demonstrations=[6, 12], order_seeds=1)
    metrics = metrics_of(measure(settings, context))
    assert metrics["total_n12"] == 2
    assert (metrics["computed_positions"] or 0) < (metrics["prompt_positions"] or 0)
    answered = {line["answer"] for line in answers(tmp_path)}
    assert answered <= set(CLASSIFICATION_TASKS["trec"].labels)
    short = Transformer.build(model_config(english.manifest.vocab_size, 100), "sdpa", 0).eval()
    with pytest.raises(UserError, match=r"6 of trec with an item and its label take \d+ positions"):
        measure(settings, replace(context, scorer=scorer(short)))


def test_a_tokenizer_that_is_not_byte_level_is_refused(
    english: PackedDataset, tmp_path: Path
) -> None:
    """As that of Llama 2, which puts a blank before each."""
    rows = [question(label, f"{word}") for label, word in enumerate("abcdef")]
    settings = files(trec(tmp_path / "sets", train=rows, test=rows), test_items=6)
    folder = Path(shutil.copytree(english.folder, tmp_path / "metaspace"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(prepend_scheme="always"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    context = eval_context(scorer(Remembering(same_class, 8)), english)
    PromptEncoder(settings, context)
    other: Any = SimpleNamespace(folder=folder, manifest=english.manifest)
    with pytest.raises(UserError, match="metaspace: its tokenizer") as refusal:
        PromptEncoder(settings, replace(context, dataset=other))
    assert "\n" not in str(refusal.value)


def test_draws_have_different_prompts_in_the_template_of_the_set(
    english: PackedDataset, tmp_path: Path
) -> None:
    rows = [question(label, f"{word} {i}") for i in range(9) for label, word in enumerate("abcdef")]
    settings = files(trec(tmp_path / "sets", train=rows, test=rows), test_items=9)
    context = eval_context(scorer(Remembering(same_class, 8)), english)
    prompts = PromptEncoder(settings, context)
    tokenizer = open_tokenizer(english)
    labeled = labeled_set(settings)
    before, after = CLASSIFICATION_TASKS["trec"].prefixes
    prompts_of_draw, items = [], []
    for number in range(2):
        draw = Draw(settings, context.scorer, labeled, prompts, number)
        first, second = (tokenizer.decode(draw.prompt(12, seed)) for seed in (0, 1))
        parts = first.split("\n==\n")
        assert parts.pop() == "" and len(parts) == 12
        assert first != second and sorted(parts) == sorted(second.split("\n==\n")[:-1])
        examples = {f"{before}{example.text}\n{after}{example.label}" for example in labeled.train}
        assert examples.issuperset(parts) and len(set(parts)) == 12
        prompts_of_draw.append(set(parts))
        items.append([tokenizer.decode(item) for item in draw.items])
    assert prompts_of_draw[0] != prompts_of_draw[1] and items[0] != items[1]
    names = ["card", "card arrival"]  # one is the beginning of the other, but for its end
    assert LabelTrie([prompts.label(name) for name in names], names).paths


@pytest.mark.skipif(
    not os.environ.get("DIFFTRANSFORMER_SHARED_DATA"),
    reason="DIFFTRANSFORMER_SHARED_DATA names no folder with the real sets",
)
@pytest.mark.parametrize("task", list(CLASSIFICATION_TASKS))
def test_the_real_sets_are_complete(task: str) -> None:
    folder = Path(os.environ["DIFFTRANSFORMER_SHARED_DATA"]) / "benchmarks"
    classes = CLASSIFICATION_TASKS[task].classes
    labeled = labeled_set(files(folder, task=task, demonstrations=[classes]))
    assert len(labeled.labels) == classes and len(labeled.test) >= 500


@pytest.mark.parametrize(("draws", "item_type", "number"), [(1, "items", 6), (3, "draws", 3)])
def test_accuracies_have_scores_by_draw_or_by_item(
    items: PackedDataset, tmp_path: Path, draws: int, item_type: str, number: int
) -> None:
    settings = suite(draws=draws, test_items=6, order_seeds=2)
    model = scorer(Remembering(last_demonstration, ITEMS.vocab_size))
    metrics = measure(settings, replace(eval_context(model, items), details=tmp_path))
    assert {*metrics.per_item} == {f"accuracy_n{n}" for n in settings.demonstrations}
    for per_item in metrics.per_item.values():
        assert (per_item.item_type, sizes(per_item)) == (item_type, [("", number)])
