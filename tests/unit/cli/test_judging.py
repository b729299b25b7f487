"""The judging job as the workflow calls it, and the estimate for people."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from judging_server import HALLUCINATED, JudgingServer, Reply, judging_server
from small_answers import of_facts
from spoiling import zeroed
from steps import step_words
from typer.testing import CliRunner, Result

from difftransformer.cli import app
from difftransformer.config.judges import EndpointJudge, JudgmentConfig, LexicalJudge
from difftransformer.evaluations.hallucination.answers import ANSWERS as FILE
from difftransformer.evaluations.hallucination.answers import Answer, read_judgments, write_lines
from difftransformer.planning.plan import Plan
from difftransformer.provenance import result as results
from difftransformer.provenance.checksums import compare_builds

KEY = "sk-canary-5b27"
ANSWERS = [of_facts("v31 k02 v05"), of_facts("v05 k02 v05", index=1), of_facts("v05", "k02")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgingServer]:
    with judging_server() as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield served


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """Result of the suite, with its answers."""
    return answer_file(tmp_path / "results/tiny/evaluations/hallucination/recall_diff/0.json")


def answer_file(path: Path, answers: list[Answer] = ANSWERS) -> Path:
    made = results.Result(
        kind="evaluation",
        job_id="evaluate-recall_diff-hallucination-0-abc",
        scale="tiny",
        run="recall_diff",
        seed=0,
        suite="hallucination",
        metrics={},
        settings={"config": {"kind": "hallucination"}},
        provenance=results.origin("ab" * 32, started=datetime.now(UTC), threads=1),
    )
    write_lines(path.with_suffix("") / FILE, answers)
    results.write_result(path, made, [path.with_suffix("") / FILE])
    return path


def judge(answered: Path, settings: LexicalJudge | EndpointJudge, **changes: Any) -> Result:
    root = answered.parents[5]
    values = {
        "scale": "tiny", "run": "recall_diff", "suite": "hallucination", "kind": "hallucination",
        "judge": settings,
    }  # fmt: skip
    slice = root / "slice.json"
    slice.write_text(JudgmentConfig(**(values | changes)).model_dump_json())
    files = {"result": answered}, {"result": output(answered, settings.kind)}
    words = ("--log", str(root / "judge.log"))
    call = step_words("judge_answers", slice, *files, *words, results=str(root / "results"))
    return CliRunner().invoke(app, call)


def output(answered: Path, kind: str) -> Path:
    return answered.parents[5] / f"results/tiny/judgments/{kind}/hallucination/recall_diff/0.json"


def endpoint(**changes: Any) -> EndpointJudge:
    return EndpointJudge(**({"requests_per_minute": 60_000.0, "max_retries": 0} | changes))


def test_the_lexical_judge_leaves_counts_and_single_judgments(answered: Path) -> None:
    assert judge(answered, LexicalJudge()).exit_code == 0
    path = output(answered, "lexical")
    result = results.read_result(path)
    assert (result.kind, result.suite) == ("judgment", "hallucination_by_lexical")
    assert (
        result.metrics["faithful_summary_n2"] == 0.5 and result.metrics["faithful_answer_n2"] == 1.0
    )
    assert result.metrics["average"] == 0.75 and result.metrics["unjudged"] == 0
    assert result.metrics["contradicted_summary_n2"] == 1
    assert result.settings["upstream"] == ["evaluate-recall_diff-hallucination-0-abc"]
    judgments = read_judgments(path.with_suffix("") / "judgments.jsonl")
    assert [(judgment.set, judgment.index, judgment.faithful) for judgment in judgments] == [
        ("summary_n2", 0, True), ("summary_n2", 1, False), ("answer_n2", 0, True)
    ]  # fmt: skip


def test_the_lexical_judge_is_deterministic(answered: Path, tmp_path: Path) -> None:
    judge(answered, LexicalJudge())
    built = tmp_path / "results" / "tiny"
    first = Path(shutil.copytree(built, tmp_path / "first"))
    shutil.rmtree(built / "judgments")
    judge(answered, LexicalJudge())
    compared = {Path(file.name): file.same for file in compare_builds(first, built)}
    assert compared[output(answered, "lexical").relative_to(built)]
    assert len(compared) == 4 and all(compared.values())


def test_the_job_is_the_judge_and_the_answers_and_not_who_generated_them(answered: Path) -> None:
    judge(answered, LexicalJudge())
    first = results.read_result(output(answered, "lexical")).job_id
    answer_file(answered)  # another generation, the same answers
    judge(answered, LexicalJudge())
    assert results.read_result(output(answered, "lexical")).job_id == first
    answer_file(answered, ANSWERS[:2])
    judge(answered, LexicalJudge())
    assert results.read_result(output(answered, "lexical")).job_id != first


def test_unclear_replies_are_counted_and_not_dropped(answered: Path, server: JudgingServer) -> None:
    server.otherwise = lambda case: HALLUCINATED if "<text>\nk07 v31 k02" in case else Reply("No.")
    assert judge(answered, endpoint()).exit_code == 0
    metrics = results.read_result(output(answered, "endpoint")).metrics
    assert (metrics["judged_summary_n2"], metrics["unjudged_summary_n2"]) == (1, 1)
    assert (metrics["judged_answer_n2"], metrics["faithful_answer_n2"]) == (0, None)
    assert metrics["average"] == metrics["average_summary"] == 0.0
    assert metrics["average_answer"] is None and metrics["unjudged"] == 2
    assert metrics["judge_prompt_tokens"] == 7 * 100
    assert len(server.requests) == 7


def test_the_api_key_and_url_are_never_written(
    answered: Path, server: JudgingServer, tmp_path: Path
) -> None:
    ended = [judge(answered, endpoint())]
    server.script = [Reply(status=403, body=f'{{"error": "{KEY} of {server.url} is bad"}}')]
    ended.append(judge(answered, endpoint(model="another")))
    assert [result.exit_code for result in ended] == [0, 2]
    assert "<OPENAI_API_KEY> of <OPENAI_BASE_URL> is bad" in (tmp_path / "judge.log").read_text()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "tracking.jsonl" for path in files) and len(files) > 8
    texts = [path.read_bytes().decode(errors="replace") for path in files]
    texts += [result.output + result.stderr for result in ended]
    for secret in (KEY, server.url.removesuffix("/v1")):
        assert not [text for text in texts if secret in text]


def test_the_estimate_comes_before_the_first_call(
    answered: Path, server: JudgingServer, tmp_path: Path
) -> None:
    server.script = [Reply(status=403, body="no")]
    judge(answered, endpoint(parallel=1, price_prompt=1.0, price_completion=1.0))
    log = (tmp_path / "judge.log").read_text()
    assert log.index("3 calls, 0 judgments are cached; about") < log.index("status 403")
    assert "at most 0.00" in log


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.unlink(), "no such result file"),
        (lambda path: (path.with_suffix("") / "answers.jsonl").unlink(), "cannot be read"),
        (lambda path: answer_file(path, []), "contains no answers"),
        (lambda path: zeroed(path.with_suffix("") / FILE), "jsonl: checksum mismatch"),
    ],
)
def test_damaged_answers_are_one_line(spoil: Any, says: str, answered: Path) -> None:
    spoil(answered)
    ended = judge(answered, LexicalJudge())
    assert ended.exit_code == 2
    assert says in ended.stderr and "Traceback" not in ended.stderr
    assert not output(answered, "lexical").exists()


def test_answers_of_another_run_are_refused(answered: Path) -> None:
    ended = judge(answered, LexicalJudge(), run="diff")
    assert ended.exit_code == 2
    assert "expected hallucination on diff, seed 0" in ended.stderr


def test_the_estimate_for_people_needs_no_key(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    seed = Plan.load(repository / "config", {}).artifacts.resolve("table4", "table").seeds[0]
    answer_file(Path(f"results/tiny/evaluations/hallucination/recall_diff/{seed}.json"))
    words = ["estimate-judge-cost", "table4", "--config-dir", str(repository / "config")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "3 answers of 1 runs: 3 calls, 0 judgments are cached" in result.output
    assert "2 runs have no answers yet: `snakemake table4" in result.output
    assert not Path("results/kept_judgments/pace").exists()
    refused = CliRunner().invoke(app, [words[0], "table6", *words[2:]])
    assert refused.exit_code == 2
    assert "table6: has no answers to judge; artifacts with answers: table4" in refused.stderr
