"""Mathematics: answers compared by math_verify, all outputs recorded, lm-eval's own numbers."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_evaluation import metrics_of, republish, save_run, sizes
from small_language_models import write_training
from tokenizers import Tokenizer

from difftransformer.convert.checkpoint import load_model
from difftransformer.convert.export import export_model
from difftransformer.data.arithmetic import held_out_problems
from difftransformer.data.math_sets import MATH_SETS, PROMPT, Item, boxed
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError, DataError
from difftransformer.evaluation.context import EvalContext, Metrics
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.mathematics import measure as evaluation
from difftransformer.evaluations.mathematics.measure import grade_answer, math_task
from difftransformer.evaluations.mathematics.set_items import set_items
from difftransformer.evaluations.mathematics.settings import Suite
from difftransformer.provenance.fingerprint import named_digest

CPU = torch.device("cpu")


def suite(**changes: object) -> Suite:
    settings = {
        "kind": "mathematics", "data": "builtin", "tasks": ["gsm8k", "carp_en"], "limit": 3,
        "max_new_tokens": 6, "batch_size": 2,
    }  # fmt: skip
    return Suite.model_validate(settings | changes)


def write_items(folder: Path, name: str, items: list[Any]) -> Path:
    path = folder / name / "test.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items)
    path.write_bytes(gzip.compress(lines.encode()))
    return path


def measure(folder: Path, run: Path, data: Path, settings: Suite) -> Metrics:
    (folder / "details").mkdir(parents=True, exist_ok=True)
    context = EvalContext(
        Scorer(load_model(run), CPU), PackedDataset.open(data), CPU, None,
        details=folder / "details", state=folder / "state", seed=3, model=run,
    )  # fmt: skip
    return metrics_of(evaluation.measure(settings, context))


def read_items(name: str, settings: Suite) -> list[Item]:
    return set_items(name, settings.data, settings.limit)


def outputs(folder: Path, name: str) -> list[str]:
    lines = (folder / "details" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["output"] for line in lines]


@pytest.mark.parametrize(
    ("output", "answer", "parsed", "correct"),
    [
        (r"7 + 5 = 12. The answer is \boxed{12}.", "12", "12", True),
        (r"First \boxed{3}, no: \boxed{51}.", "51.0", "51", True),
        (r"It is $\frac{1}{2}$.", "0.5", r"\frac{1}{2}", True),
        (r"\boxed{(a+b)(a-b)}", "$a^2 - b^2$", "(a+b)(a-b)", True),
        ("so 43 are left", "43", "43", True),
        (r"The answer is \boxed{22600}.", "22,600", "22600", True),
        (r"The answer is \boxed{13}.", "12", "13", False),
        ("The answer is swing dance class.", "swing dance class", "swing dance class", True),
        (r"\boxed{Surplus}", "shortage", None, False),
        ("", "4", None, False),
    ],
)
def test_equivalent_answers_are_correct(
    output: str, answer: str, parsed: str | None, correct: bool
) -> None:
    grade = grade_answer(output, answer)
    assert grade.correct is correct
    if parsed is not None:
        assert grade.parsed == parsed


def test_a_box_is_read_with_its_braces() -> None:
    assert boxed(r"\boxed{\frac{1}{2}} and") == r"\frac{1}{2}"
    assert boxed(r"\boxed{1} \boxed{{2}}") == "{2}"
    assert boxed(r"\boxed{1") is None and boxed("none") is None


def test_items_of_a_folder_have_the_prompts_of_generated_items(tmp_path: Path) -> None:
    for name in MATH_SETS:
        write_items(tmp_path, name, [p.item for p in held_out_problems(name, 4, 0)])
        settings = suite(tasks=[name], data=str(tmp_path), limit=2)
        task = math_task(name, read_items(name, settings), settings, {})
        problem = held_out_problems(name, 4, 0)[1]
        assert len(task.test_docs()) == 2
        assert task.doc_to_text(task.test_docs()[1]) == f"Question: {problem.question}\nAnswer:"
        assert grade_answer(
            rf"\boxed{{{problem.steps[-1].result}}}", task.test_docs()[1]["answer"]
        ).correct
    settings = suite(tasks=list(MATH_SETS), data=str(tmp_path))
    assert len(settings.files()) == len(MATH_SETS)
    before = named_digest(settings.files().items())
    write_items(tmp_path, "svamp", [held_out_problems("svamp", 1, 9)[0].item])
    assert named_digest(settings.files().items()) != before


@pytest.mark.parametrize(
    ("name", "items", "complaint"),
    [
        (
            "svamp",
            [{"Body": "b", "Question": "q"}],
            "line 1: field 'Answer' is missing; svamp needs",
        ),
        ("gsm8k", [{"question": "q", "answer": "3"}, "{"], "line 2: not JSON"),
        ("math", [{"problem": "p", "solution": "no box"}], "field 'solution' holds no answer"),
        ("mawps", [], "mawps holds no items"),
        (
            "svamp",
            [{"Body": 5, "Question": "q", "Answer": 1}],
            "line 1: a field has another type than svamp needs",
        ),
    ],
)
def test_a_bad_item_is_named_in_one_line(
    name: str, items: list[Any], complaint: str, tmp_path: Path
) -> None:
    write_items(tmp_path, name, items)
    with pytest.raises(DataError, match=complaint):
        read_items(name, suite(tasks=[name], data=str(tmp_path)))


def test_a_missing_set_is_refused_before_any_job(tmp_path: Path) -> None:
    write_items(tmp_path, "gsm8k", ["{}"])
    with pytest.raises(DataError, match=r"carp_en: holds no test.jsonl or .jsonl.gz; put carp_en"):
        suite(data=str(tmp_path)).files()
    with pytest.raises(DataError, match="no such folder"):
        suite(data=str(tmp_path / "none")).files()


@pytest.mark.slow
def test_scores_are_those_of_lm_evals_own_run_on_the_export(tmp_path: Path) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    run, data = write_training(tmp_path)
    settings = suite(limit=4, max_new_tokens=3)
    items = read_items("carp_en", settings)
    ours = measure(tmp_path, run, data, settings)
    export_model(run, tmp_path / "exported")
    task = math_task("carp_en", items, settings, {})
    theirs = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(tmp_path / "exported"), "trust_remote_code": True},
        tasks=[task], batch_size=2, device="cpu",
        task_manager=TaskManager(include_defaults=False),
    )  # fmt: skip
    metrics = theirs["results"]["mathematics_carp_en"]
    assert ours["carp_en"] == metrics["exact_match,none"]
    assert ours["carp_en_stderr"] == metrics["exact_match_stderr,none"]
    texts = [sample["filtered_resps"][0] for sample in theirs["samples"]["mathematics_carp_en"]]
    assert outputs(tmp_path, "carp_en") == texts
    assert ours["average"] == pytest.approx((ours["carp_en"] + ours["gsm8k"]) / 2)


def test_finished_sets_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, data = write_training(tmp_path)
    first = measure(tmp_path, run, data, suite())
    monkeypatch.setattr(evaluation, "wrap_for_lm_eval", None)  # asking would fail
    assert measure(tmp_path, run, data, suite()) == first
    (tmp_path / "state" / "carp_en.json").unlink()
    with pytest.raises(TypeError):
        measure(tmp_path, run, data, suite())


def test_missing_intermediate_checkpoints_are_refused(tmp_path: Path) -> None:
    run, data = write_training(tmp_path)
    training = {
        "steps": 10, "seq_len": 4, "batch_size": 2, "lr": 0.1, "warmup_steps": 0,
        "save_checkpoints_at": [0.5],
    }  # fmt: skip
    republish(run, settings={"training": training})
    with pytest.raises(CheckpointError, match=r"step-00000005.safetensors: no .*with 0.5"):
        measure(tmp_path, run, data, suite(intermediate_checkpoints=True))
    other = save_run(tmp_path / "other", 320, dataset=data, seed=4)
    (run / "intermediate").mkdir()
    (run / "intermediate" / "step-00000005.safetensors").write_bytes(
        (other / "model.safetensors").read_bytes()
    )
    with pytest.raises(
        DataError, match=r"intermediate/step-00000005.safetensors: checksum mismatch"
    ):
        measure(tmp_path, run, data, suite(intermediate_checkpoints=True))
    republish(run)
    metrics = measure(tmp_path, run, data, suite(intermediate_checkpoints=True))
    assert metrics["gsm8k_samples_t40"] == metrics["gsm8k_samples"] == 3
    alone = measure(tmp_path / "alone", other, data, suite())
    assert (
        alone.items()
        == {
            name.removesuffix("_t40"): value
            for name, value in metrics.items()
            if name.endswith("_t40")
        }.items()
    )
    intermediate, final = outputs(tmp_path, "gsm8k_t40"), outputs(tmp_path, "gsm8k")
    assert intermediate == outputs(tmp_path / "alone", "gsm8k") != final


def test_lengths_are_in_tokens_and_truncated_prompts_are_counted(tmp_path: Path) -> None:
    run, data = write_training(tmp_path)
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))

    def length(text: str) -> int:
        return len(tokenizer.encode(text).ids)

    questions = ["1" * n for n in range(1, 30)]
    longest, longer = (
        next(
            question
            for question in questions
            if length(PROMPT.format(question=question)) == 40 - 1 + more
        )
        for more in (0, 1)
    )
    items = [{"content": question, "answer": "1"} for question in ("1", longest, longer, longer)]
    write_items(tmp_path / "items", "carp_en", items)
    for room, cut in ((1, 2), (6, 3)):
        settings = suite(
            tasks=["carp_en"], data=str(tmp_path / "items"), limit=None, max_new_tokens=room
        )
        metrics = measure(tmp_path / str(room), run, data, settings)
        texts = outputs(tmp_path / str(room), "carp_en")
        assert metrics["carp_en_truncated"] == cut / 4
        assert metrics["carp_en_tokens"] == metrics["average_tokens"] == sum(map(length, texts)) / 4
        assert (
            metrics["carp_en_reached_limit"]
            == sum(length(question) >= room for question in texts) / 4
        )
        assert room > 1 or 1 in map(length, texts)  # of longer outputs the text has more tokens


def test_accuracies_and_lengths_have_scores_by_item(tmp_path: Path) -> None:
    run, data = write_training(tmp_path)
    (tmp_path / "details").mkdir()
    context = EvalContext(
        Scorer(load_model(run), CPU), PackedDataset.open(data), CPU, None,
        details=tmp_path / "details", state=tmp_path / "state", seed=3, model=run,
    )  # fmt: skip
    metrics = evaluation.measure(suite(), context)
    names = ["carp_en", "gsm8k", "average"]
    assert {*metrics.per_item} == {*names, *(f"{name}_tokens" for name in names)}
    assert sizes(metrics.per_item["gsm8k_tokens"]) == [("gsm8k", 3)]
    assert sorted(sizes(metrics.per_item["average"])) == [("carp_en", 3), ("gsm8k", 3)]


def test_one_item_has_no_standard_error(tmp_path: Path) -> None:
    run, data = write_training(tmp_path)
    write_items(tmp_path / "items", "carp_en", [{"content": "1 + 1", "answer": "2"}])
    settings = suite(tasks=["carp_en"], data=str(tmp_path / "items"), limit=None)
    metrics = measure(tmp_path, run, data, settings)
    assert metrics["carp_en"] == metrics["average"] == 0
    assert metrics["carp_en_stderr"] is None and metrics["average_stderr"] is None
