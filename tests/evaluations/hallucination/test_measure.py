"""Generated answers: prompts are the same for all models, and documents are truncated to fit."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import RECALL, Remembering, eval_context, metrics_of, model_config, scorer
from torch import Tensor

from difftransformer.config.judges import LexicalJudge
from difftransformer.data.packed import PackedDataset
from difftransformer.data.recall import RecallVocabulary
from difftransformer.errors import DataError
from difftransformer.evaluation.context import Metrics
from difftransformer.evaluations.hallucination.answers import (
    ANSWERS,
    JUDGMENTS,
    Answer,
    empty_judgment,
    read_answers,
    read_judgments,
    write_lines,
)
from difftransformer.evaluations.hallucination.documents import load_items
from difftransformer.evaluations.hallucination.judge import aggregate
from difftransformer.evaluations.hallucination.judges.lexical import open_judge
from difftransformer.evaluations.hallucination.measure import measure
from difftransformer.evaluations.hallucination.settings import Suite
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.fingerprint import named_digest

VOCABULARY = RecallVocabulary.of(RECALL)


def suite(**changes: Any) -> Suite:
    settings = {"needles": [1, 2], "samples": 5, "summary_pairs": 3}
    return Suite(kind="hallucination", **(settings | changes))


def faithful(tokens: Tensor) -> Tensor:
    """Predict the value after a key's first occurrence; after other tokens the first key."""
    row = tokens[0].tolist()
    out = torch.zeros_like(tokens)
    first = next(token for token in row if token in VOCABULARY.keys)
    out[0, -1] = row[row.index(row[-1]) + 1] if row[-1] in VOCABULARY.keys else first
    return out


def mixing(tokens: Tensor) -> Tensor:
    """Predict after a key the last value of the row, whichever key it belongs to."""
    row, out = tokens[0].tolist(), faithful(tokens)
    if row[-1] in VOCABULARY.keys:
        out[0, -1] = next(token for token in row[::-1] if token in VOCABULARY.values)
    return out


def run(
    rule: Any, dataset: PackedDataset, folder: Path, **changes: Any
) -> tuple[Metrics, list[Answer], Metrics]:
    """Return the suite's metrics, its answers, and the lexical judge's metrics."""
    folder.mkdir()
    model = scorer(Remembering(rule, RECALL.vocab_size))
    settings = suite(**changes)
    metrics = measure(settings, replace(eval_context(model, dataset), details=folder))
    answers = read_answers(folder)
    judged = open_judge(LexicalJudge(), folder).judge(answers)
    return metrics, answers, metrics_of(aggregate(settings.set_tasks, answers, judged))


@pytest.fixture
def rows(recall: Path) -> PackedDataset:
    return PackedDataset.open(recall)


def test_a_faithful_model_and_one_that_mixes_facts(rows: PackedDataset, tmp_path: Path) -> None:
    metrics, answers, right = run(faithful, rows, tmp_path / "right")
    sets = ["summary_n1", "summary_n2", "answer_n1", "answer_n2"]
    assert {metrics[f"samples_{name}"] for name in sets} == {5}
    assert {right[f"faithful_{name}"] for name in sets} == {1.0}
    assert right["average"] == right["average_answer"] == 1.0
    assert metrics["computed_positions"] < metrics["prompt_positions"] / 1.5  # documents are shared
    summary = next(record for record in answers if record.set == "summary_n2")
    assert len(summary.output.split()) == 5
    assert summary.prompt == f"{summary.document} {summary.question}"
    assert all(word in summary.document for word in summary.reference.split())
    answer = next(record for record in answers if record.set == "answer_n2")
    assert answer.prompt == f"{answer.document} {answer.question}"
    assert answer.output == answer.reference and answer.document == summary.document

    _, mixed, wrong = run(mixing, rows, tmp_path / "wrong")
    assert [record.prompt for record in mixed] == [record.prompt for record in answers]
    assert wrong["faithful_answer_n1"] == wrong["faithful_summary_n1"] == 1.0  # there is one value
    same = sum(record.output == record.reference for record in mixed if record.set == "answer_n2")
    assert wrong["faithful_answer_n2"] == same / 5 < 1
    assert wrong["contradicted_answer_n2"] == 5 - same
    assert wrong["average"] == pytest.approx(
        sum(float(wrong[f"faithful_{name}"] or 0) for name in sets) / 4
    )


def test_generation_is_deterministic(rows: PackedDataset, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(faithful, rows, tmp_path / name)
    first, second = ((tmp_path / name / ANSWERS).read_bytes() for name in ("a", "b"))
    assert first == second


def test_documents_have_the_configured_length(rows: PackedDataset, tmp_path: Path) -> None:
    for length in (None, 30):
        _, answers, judged = run(faithful, rows, tmp_path / str(length), haystack_length=length)
        expected = RECALL.haystack_length if length is None else length
        assert {len(answer.document.split()) for answer in answers} == {expected}
        assert judged["average"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"needles": [13]}, "needles: 13 do not fit 25 tokens, which hold at most 8"),
        ({"summary_pairs": 9}, "25 tokens and 9 pairs do not fit max_positions 40"),
        ({"haystack_length": 36}, "36 tokens and 3 pairs do not fit max_positions 40"),
        ({"format": "text"}, "format: text needs another dataset"),
    ],
)
def test_settings_that_do_not_fit_the_context_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    assert message in (suite(**changes).incompatibility(40, RECALL) or "")


def write(path: Path, *items: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(item) + "\n" for item in items)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "benchmarks"
    document = "The mill at Aldbury closed in 1931. " * 30
    xsum = [{"id": str(i), "document": f"{i} {document}", "summary": "It shut."} for i in range(9)]
    write(root / "xsum" / "sample9.jsonl.gz", *xsum)
    passages = [{"title": "A mill", "text": document}, {"title": "B", "text": "Short."}]
    question = {"id": "q", "question": "When?", "answer": "1931", "paragraphs": passages}
    write(root / "hotpotqa" / "validation.jsonl", question)
    (root / "hotpotqa" / "._validation.jsonl").write_bytes(b"\0\5\x16\7")  # of macOS
    (root / "xsum" / "._sample9.jsonl.gz").write_bytes(b"\0\5\x16\7")
    write(root / "qasper" / "train.jsonl", {"input": "?"})
    write(root / "qasper" / "test.jsonl", {"context": "C", "input": "Q", "answers": ["A", "B"]})
    return root


def of_text(folder: Path, **changes: Any) -> Suite:
    changes = {"samples": 4, "summary_tokens": 12, "answer_tokens": 6} | changes
    return suite(format="text", data=str(folder), **changes)


def test_answers_about_documents_of_a_folder_are_recorded(
    folder: Path, english: PackedDataset, tmp_path: Path
) -> None:
    model = Transformer.build(model_config(english.manifest.vocab_size, 120), "sdpa", 0)
    (tmp_path / "details").mkdir()
    where = replace(eval_context(scorer(model), english), details=tmp_path / "details")
    metrics = measure(of_text(folder), where)
    assert metrics["samples_xsum"] == 4 and metrics["truncated_xsum"] == 1.0
    assert metrics["samples_hotpotqa"] == 1 and metrics["truncated_qasper"] == 0.0
    assert metrics["samples_cnn_dailymail"] == 0 and metrics["truncated_cnn_dailymail"] is None
    answers = read_answers(tmp_path / "details")
    assert [answer.set for answer in answers] == ["xsum"] * 4 + ["qasper", "hotpotqa"]
    by_set = {answer.set: answer for answer in answers}
    assert by_set["qasper"].prompt == "C\n\nQuestion: Q\nAnswer:"
    assert by_set["qasper"].reference == "A"
    assert by_set["hotpotqa"].document.startswith("A mill\nThe mill at Aldbury")
    assert by_set["hotpotqa"].prompt.endswith("\n\nQuestion: When?\nAnswer:")
    assert by_set["xsum"].prompt == by_set["xsum"].document + "\n\nSummary:"
    assert by_set["xsum"].truncated and "\n" not in by_set["hotpotqa"].output


def test_sampled_documents_depend_only_on_the_seed(folder: Path) -> None:
    drawn = [item.id for item in load_items(of_text(folder))["xsum"]]
    assert drawn == [item.id for item in load_items(of_text(folder))["xsum"]]
    assert len(set(drawn)) == 4 and drawn != sorted(drawn)


def test_edited_items_change_the_digest(folder: Path) -> None:
    before = named_digest(of_text(folder).files().items())
    write(folder / "qasper" / "test.jsonl", {"context": "D", "input": "Q", "answers": ["A"]})
    assert named_digest(of_text(folder).files().items()) != before and not suite().files()


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"document": "D", "summary": " "}], "item 1: has no text in summary$"),
        ([{"summary": "S"}], "item 1: has no text in document$"),
        ([], "contains no items"),
        *([[item], "item 1: not a mapping"] for item in ([], 5, "text")),
    ],
)
def test_a_damaged_item_is_named(items: list[Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "xsum" / "test.jsonl", *items)
    with pytest.raises(DataError, match=rf"xsum/test.jsonl: {message}"):
        load_items(of_text(tmp_path))


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "xsum" / "test.jsonl.gz"
    path.parent.mkdir()
    data = bytearray(gzip.compress(b'{"document": "D", "summary": "S"}\n' * 99, mtime=0))
    data[10] ^= 0xFF  # the first byte of what is compressed
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"xsum/test.jsonl.gz"):
        load_items(of_text(tmp_path))


def test_unicode_line_separators_survive_a_round_trip(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four\x0cfive"
    answer = Answer(
        set="xsum", index=0, id="1", task="summary", format="text", document=text, truncated=False,
        question=None, reference=text, prompt=text, output=text,
    )  # fmt: skip
    write_lines(tmp_path / ANSWERS, [answer, answer])
    assert read_answers(tmp_path) == [answer, answer]
    judgment = empty_judgment(answer).model_copy(update={"reason": text})
    write_lines(tmp_path / JUDGMENTS, [judgment])
    assert read_judgments(tmp_path / JUDGMENTS) == [judgment]


def test_an_empty_or_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"contains none of the sets xsum, cnn_dailymail"):
        load_items(of_text(tmp_path))
    with pytest.raises(DataError, match=r"no such folder"):
        load_items(of_text(tmp_path / "nowhere"))


@pytest.mark.skipif(
    not os.environ.get("DIFFTRANSFORMER_SHARED_DATA"),
    reason="DIFFTRANSFORMER_SHARED_DATA names no folder with the real sets",
)
def test_real_sets_are_read() -> None:
    root = Path(os.environ["DIFFTRANSFORMER_SHARED_DATA"], "benchmarks")
    items_by_set = load_items(of_text(root, samples=100))
    assert {name: len(items) for name, items in items_by_set.items()} == {
        "xsum": 100, "cnn_dailymail": 100, "hotpotqa": 100
    }  # fmt: skip
    assert all(
        item.question and item.document.count("\n\n") == 9 for item in items_by_set["hotpotqa"][:9]
    )
