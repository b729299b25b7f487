"""The language model as a judge, against a real HTTP server on loopback."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from judging_server import FAITHFUL, HALLUCINATED, QUICK, JudgingServer, Reply, judging_server
from small_answers import of_facts, of_text

from difftransformer.config.judges import EndpointJudge
from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation import endpoints
from difftransformer.evaluation.endpoints import EndpointError, RateLimiter
from difftransformer.evaluations.hallucination.answers import Answer, Judgment
from difftransformer.evaluations.hallucination.judges.endpoint import (
    PROMPTS,
    ModelJudge,
    messages,
    open_judge,
    verdict,
)

KEY = "sk-canary-8d1f"
ANSWERS = [of_facts(f"v{number:02d}", index=number) for number in (31, 1, 2)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgingServer]:
    with judging_server() as served:
        served.otherwise = lambda case: FAITHFUL if "k07 v31\n</text>" in case else HALLUCINATED
        monkeypatch.setenv("OPENAI_BASE_URL", f"{served.url}\n")  # as read from a file
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        yield served


def endpoint(folder: Path, **changes: Any) -> ModelJudge:
    settings = {"model": "m", "requests_per_minute": 60_000.0, "timeout": 5.0, "max_retries": 2}
    return open_judge(EndpointJudge(**(settings | changes)), folder)


def verdicts(judgments: list[Judgment]) -> list[bool | None]:
    return [judgment.faithful for judgment in judgments]


def test_judgments_keep_the_order_of_the_answers(server: JudgingServer, tmp_path: Path) -> None:
    judged = endpoint(tmp_path).judge(ANSWERS)
    assert verdicts(judged) == [True, False, False]
    assert [request.index for request in judged] == [31, 1, 2]
    assert judged[1].reason.startswith("It names another value.")
    assert judged[0].usage == {"prompt_tokens": 100, "completion_tokens": 7}
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert {request["temperature"] for request in server.requests} == {0}


def test_a_cached_judgment_is_never_requested_again(
    server: JudgingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = endpoint(tmp_path).judge(ANSWERS)
    assert len(server.requests) == 3
    monkeypatch.delenv("OPENAI_API_KEY")  # not needed either
    assert endpoint(tmp_path).judge(ANSWERS[::-1]) == first[::-1]
    assert endpoint(tmp_path, timeout=1.0, max_retries=0).judge(ANSWERS) == first
    assert len(server.requests) == 3
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    endpoint(tmp_path, model="another").judge(ANSWERS)
    endpoint(tmp_path, max_tokens=7).judge(ANSWERS)
    endpoint(tmp_path).judge([*ANSWERS, of_facts("v31 k02 v05")])
    assert len(server.requests) == 10


def test_concurrent_equal_requests_are_sent_once(server: JudgingServer, tmp_path: Path) -> None:
    judges = [endpoint(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(len(judges)) as pool:
        judgments = list(pool.map(lambda judge: judge.judge(ANSWERS), judges))
    assert all(result == judgments[0] for result in judgments)
    assert len(server.requests) == len(ANSWERS)


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(status=429, headers=QUICK, body='{"error": {"message": "slow down"}}'),
        Reply(status=500, headers=QUICK, body="<html>oops</html>"),
        Reply(status=503, headers=QUICK),
        Reply(delay=0.5),
    ],
    ids=["429", "500", "503", "timeout"],
)
def test_temporary_errors_are_retried(
    trouble: Reply, server: JudgingServer, tmp_path: Path
) -> None:
    server.script = [trouble]
    judged = endpoint(tmp_path, timeout=0.2, parallel=1).judge(ANSWERS[:1])
    assert verdicts(judged) == [True]
    assert len(server.requests) == 2
    if trouble.status == 429:
        assert server.moments[1] - server.moments[0] >= 0.05


@pytest.mark.parametrize(
    "malformed",
    [
        Reply(body="{not json"),
        Reply(body='"a text"', headers={"Content-Type": "text/plain"}),
        Reply(body='{"choices": []}'),
        Reply(body='{"choices": [{"message": {"content": null, "refusal": "No."}}]}'),
        Reply("I'm sorry, I can't help with that."),
        Reply("Verdict: faithful\nVerdict: hallucinated"),
        Reply("Verdict: maybe"),
    ],
)
def test_a_malformed_reply_is_retried_then_unjudged(
    malformed: Reply, server: JudgingServer, tmp_path: Path
) -> None:
    server.script = [malformed]
    assert verdicts(endpoint(tmp_path / "a").judge(ANSWERS[:1])) == [True]
    assert len(server.requests) == 2
    server.script = [malformed] * 3
    (judged,) = endpoint(tmp_path / "b").judge(ANSWERS[:1])
    assert (judged.faithful, judged.cause) == (None, "malformed")
    counted = 3 if malformed.body is None else 0  # tokens of every reply that tells them
    assert judged.usage.get("prompt_tokens", 0) == 100 * counted
    assert len(server.requests) == 5
    assert endpoint(tmp_path / "b").judge(ANSWERS[:1]) == [judged]
    assert len(server.requests) == 5


def test_a_failing_endpoint_gives_one_line_and_keeps_the_cache(
    server: JudgingServer, tmp_path: Path
) -> None:
    server.script = [HALLUCINATED] + [Reply(status=500, headers=QUICK)] * 3
    with pytest.raises(EndpointError, match="status 500"):
        endpoint(tmp_path, parallel=1).judge(ANSWERS)
    before = len(server.requests)
    assert verdicts(endpoint(tmp_path, parallel=1).judge(ANSWERS)) == [False, False, False]
    assert len(server.requests) == before + 2


def test_a_refused_connection_gives_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(EndpointError, match="APIConnectionError after 1 tries") as caught:
        endpoint(tmp_path, max_retries=0).judge(ANSWERS)
    assert KEY not in str(caught.value) and "127.0.0.1" not in str(caught.value)


def test_an_echoed_key_is_masked_in_the_message(server: JudgingServer, tmp_path: Path) -> None:
    server.script = [Reply(status=401, body=f'{{"error": "wrong key {KEY} at {server.url}"}}')]
    with pytest.raises(EndpointError, match=r"status 401: .*wrong key <OPENAI_API_KEY>") as caught:
        endpoint(tmp_path, parallel=1).judge(ANSWERS)
    assert KEY not in str(caught.value) and server.url not in str(caught.value)
    assert len(server.requests) == 1


def test_a_truncated_key_is_masked_too(server: JudgingServer, tmp_path: Path) -> None:
    server.script = [Reply(status=401, body="x" * 195 + KEY)]
    with pytest.raises(EndpointError) as caught:
        endpoint(tmp_path, parallel=1).judge(ANSWERS)
    assert "x<OPEN" in str(caught.value) and KEY[:3] not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_BASE_URL", "http://localhost:port/v1"),
        ("OPENAI_BASE_URL", "localhost/v1"),
        ("OPENAI_API_KEY", "sk-…"),
        ("OPENAI_BASE_URL", ""),
        ("OPENAI_API_KEY", ""),
    ],
)
def test_a_bad_or_missing_variable_is_named_without_its_value(
    name: str, value: str, server: JudgingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    if not value:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=name) as caught:
        endpoint(tmp_path).judge(ANSWERS)
    assert not value or value not in str(caught.value)
    assert not server.requests


def test_an_empty_output_costs_nothing(server: JudgingServer, tmp_path: Path) -> None:
    (judged,) = endpoint(tmp_path).judge([of_text(" \n")])
    assert (judged.faithful, judged.cause) == (None, "empty")
    assert not server.requests


def test_the_estimate_counts_uncached_requests_and_sends_nothing(
    server: JudgingServer, tmp_path: Path
) -> None:
    judge = endpoint(tmp_path, price_prompt=2.0, price_completion=8.0, max_tokens=100)
    estimate = judge.estimate([*ANSWERS, of_text("")])
    characters = sum(len(m["content"]) for answer in ANSWERS for m in messages("v1", answer))
    assert estimate[:4] == (3, 0, characters // 4, 300)
    assert estimate.price == pytest.approx((characters // 4 * 2 + 300 * 8) / 1e6)
    assert not server.requests
    judge.judge(ANSWERS[:2])
    assert judge.estimate(ANSWERS)[:2] == (1, 2)
    assert "price unknown" in str(endpoint(tmp_path).estimate(ANSWERS))


def test_a_damaged_judgment_is_named(server: JudgingServer, tmp_path: Path) -> None:
    endpoint(tmp_path).judge(ANSWERS[:1])
    (path,) = tmp_path.glob("*/*.json")
    path.write_text("{")
    with pytest.raises(DataError, match=rf"{path.name}: not a complete judgment; delete"):
        endpoint(tmp_path).judge(ANSWERS[:1])


def test_two_jobs_share_the_rate_limit(
    server: JudgingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(time=lambda: 1000.0, sleep=slept.append)
    monkeypatch.setattr(endpoints, "time", clock)  # stands still: each turn waits for its whole way
    turns = [RateLimiter(tmp_path / "pace", 600), RateLimiter(tmp_path / "pace", 600)]
    for turn in turns * 2:
        turn.wait()
    endpoint(tmp_path, requests_per_minute=600.0).judge(ANSWERS)
    assert sorted(slept) == pytest.approx([turn_index / 10 for turn_index in range(7)], abs=1e-4)


def test_the_rate_limit_works_over_hours_and_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    now = [1e9]
    clock = SimpleNamespace(time=lambda: now[0], sleep=slept.append)
    monkeypatch.setattr(endpoints, "time", clock)
    pace = RateLimiter(tmp_path / "pace", 1 / 120)
    for _ in range(3):
        pace.wait()
    now[0] -= 1e6
    pace.wait()
    assert slept == pytest.approx([0, 7200, 14400, 0])


@pytest.mark.parametrize("answer", [of_facts("v31 k02 v05"), of_facts("v31"), of_text("It.")])
def test_the_judge_sees_document_reference_and_output(answer: Answer) -> None:
    for version in PROMPTS:
        system, user = messages(version, answer)
        assert (system["role"], user["role"]) == ("system", "user")
        for part in (answer.document, answer.reference, answer.judged_text):
            assert f">\n{part}\n<" in user["content"]
        assert ("code words" in user["content"]) == (answer.format == "recall")
        assert ("Question:\nk07" in user["content"]) == (answer.task == "answer")
        assert "{" not in user["content"]


@pytest.mark.parametrize(
    ("reply", "read"),
    [
        ("Verdict: faithful", True),
        ("It says so.\n\n> **VERDICT: Hallucinated.**\n", False),
        ("Verdict: faithful\nVerdict: faithful", True),
        ("The verdict: faithful would be wrong here.", None),
        ("faithful", None),
        ("", None),
    ],
)
def test_verdicts_are_parsed_strictly(reply: str, read: bool | None) -> None:
    assert verdict(reply) is read
