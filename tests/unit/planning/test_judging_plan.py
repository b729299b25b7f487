"""Jobs of the judges: their dependencies and the checks before them."""

from pathlib import Path
from typing import Any

import pytest

from difftransformer.config.judges import JudgmentConfig
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import ConfigError
from difftransformer.planning.plan import Plan

ENVIRONMENT = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "sk-plan"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def load(repository: Path, **overrides: Any) -> Plan:
    return Plan.load(repository / "config", {"scale": "smoke", **overrides})


def judgments(plan: Plan) -> set[str]:
    return {path for path in plan.artifacts.results("table4") if "/judgments/" in path}


def test_another_judge_adds_judging_and_no_generation(repository: Path) -> None:
    lexical, both = load(repository), load(repository, judge="both")
    assert len(judgments(lexical)) == 3 and len(judgments(both)) == 6
    assert judgments(lexical) < judgments(both)
    rest = [set(plan.artifacts.results("table4")) - judgments(plan) for plan in (lexical, both)]
    assert rest[0] == rest[1]
    suite, run = "hallucination", "recall_diff"
    assert lexical.jobs.evaluation_config_file(suite, run) == both.jobs.evaluation_config_file(
        suite, run
    )
    assert (
        lexical.artifacts.judgment_details("table4")
        == []
        != both.artifacts.judgment_details("table4")
    )
    assert (
        both.artifacts.judgment_details("table2") == both.artifacts.judgment_details("table6") == []
    )
    assert not {path for path in both.artifacts.results("table2") if "/judgments/" in path}


def test_the_slice_of_a_judge_holds_names_of_variables_and_no_secret(repository: Path) -> None:
    plan = load(repository, judge=["endpoint"])
    path = Path(plan.jobs.judgment_config_file("endpoint", "hallucination", "recall_diff"))
    slice = JudgmentConfig.model_validate_json(path.read_bytes())
    assert (slice.judge.kind, slice.run) == ("endpoint", "recall_diff")
    assert "OPENAI_API_KEY" in path.read_text()
    assert not [value for value in ENVIRONMENT.values() if value in path.read_text()]


def test_the_table_knows_its_judges_in_their_order(repository: Path) -> None:
    for judge, order in (
        ("both", ["endpoint", "lexical"]), (["lexical", "endpoint"], ["lexical", "endpoint"])
    ):  # fmt: skip
        file = load(repository, judge=judge).artifacts.config_file("table4", "table")
        slice = ResolvedArtifact.model_validate_json(Path(file).read_bytes())
        assert slice.sections[0].judges == order


def test_judges_have_different_code_fingerprints(repository: Path) -> None:
    plan = load(repository)
    codes = {
        plan.jobs.code("judge_answers", judge, "hallucination") for judge in ("lexical", "endpoint")
    }
    assert len(codes) == 2


@pytest.mark.parametrize("missing", ENVIRONMENT)
def test_an_endpoint_without_address_or_key_stops_everything_in_one_line(
    missing: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(missing, "")
    load(repository)
    for judge in ("endpoint", "both"):
        with pytest.raises(ConfigError, match=f"judge: endpoint needs {missing} in the env"):
            load(repository, judge=judge)


@pytest.mark.parametrize("judge", ["gpt", [], ["lexical", "lexical"]])
def test_an_unknown_judge_is_one_line(judge: Any, repository: Path) -> None:
    with pytest.raises(ConfigError, match=r"--config: judge"):
        load(repository, judge=judge)


@pytest.mark.parametrize("scale", ["smoke", "tiny", "small", "gpu", "paper"])
def test_every_scale_has_rows_for_its_documents(scale: str, repository: Path) -> None:
    plan = load(repository, scale=scale)
    text = plan.resolver.suite("hallucination").format == "text"
    for run in plan.artifacts.available["table4"].runs():
        assert (plan.resolver.dataset(plan.jobs.run(run).dataset).recall is None) == text


def test_documents_come_from_the_benchmarks_of_the_project(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    items = tmp_path / "benchmarks" / "xsum" / "test.jsonl"
    items.parent.mkdir(parents=True)
    items.write_text("{}\n")
    plan = load(repository, benchmarks=str(tmp_path / "benchmarks"))
    (listing,) = plan.jobs.benchmarks("hallucination_text")
    assert Path(listing).read_text().startswith('["benchmarks/xsum/test.jsonl", 3, ')
    assert plan.jobs.benchmarks("hallucination") == []  # generated rows need none
    assert plan.resolver.suite("hallucination") == load(repository).resolver.suite("hallucination")
