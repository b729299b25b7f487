"""Tables and figures of a scale: their rows, claims and inputs."""

from pathlib import Path

import pytest

from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.planning.plan import Plan


def test_small_scales_train_nothing_new_for_tables_1_and_8(repository: Path) -> None:
    for scale in ("smoke", "tiny", "small"):
        plan = Plan.load(repository / "config", {"scale": scale})
        for table in ("table1", "table8"):
            assert set(plan.artifacts.available[table].runs()) == {"transformer", "diff"}
    paper = Plan.load(repository / "config", {"scale": "paper"})
    assert paper.jobs.run("diff_3b_1t").training.total_steps == 250_000
    assert paper.artifacts.available["table8"].runs() == ["transformer_3b", "diff_3b"]


def test_models_of_text_stand_in_where_prompts_are_english(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan.load(repository / "config", {"scale": "gpu"})
    assert plan.artifacts.available["table2"].runs() == [
        "transformer", "transformer_halved_heads_groupnorm", "diff",
    ]  # fmt: skip
    slice = ResolvedArtifact.model_validate_json(
        Path(plan.artifacts.config_file("table2", "table")).read_bytes()
    )
    assert slice.sections[0].rows[2].baseline == "transformer"
    tested = plan.claims.tested(["table2"], {})
    (contrast,) = tested.claims["V1.needles"].contrasts
    assert (contrast.row, contrast.baseline) == ("diff", "transformer_halved_heads_groupnorm")
    assert tested.tables[0].artifact == "table2" and len(tested.tables) == 1
    registered = plan.resolver.registry.claims["V1.needles"]
    assert registered.contrasts[0].row == "recall_diff"
    assert tested.digests["V1.needles"] == registered.digest  # of the definition, at any scale
    assert slice.paper is not None and slice.paper.rows["diff"].values["n6_r2"] == 0.85
    tiny = Plan.load(repository / "config", {"scale": "tiny"})
    assert tiny.artifacts.available["table2"].runs()[0] == "recall_transformer"


def test_where_nothing_is_learned_no_claim_is_tested(plan: Plan) -> None:
    tested = plan.claims.tested(list(plan.artifacts.available), {})
    if plan.jobs.scale == "smoke":
        assert set(tested.not_testable) == set(tested.claims)
    elif plan.jobs.scale == "tiny":
        assert not tested.not_testable
    else:  # no budget has been chosen there
        assert set(tested.not_testable) == {"V1.equal_tokens", "V1.equal_tokens_control"}


def test_tables_of_settings_train_nothing(plan: Plan) -> None:
    assert plan.artifacts.results("table9") == plan.artifacts.results("table10") == []


def test_the_papers_scale_has_the_papers_settings(repository: Path) -> None:
    plan = Plan.load(repository / "config", {"scale": "paper"})
    for name in ("table9", "table10"):
        slice = ResolvedArtifact.model_validate_json(
            Path(plan.artifacts.config_file(name, "table")).read_bytes()
        )
        assert slice.paper is not None
        for row in (row for part in slice.sections for row in part.rows):
            published = slice.paper.rows[row.run].values
            for key, value in published.items():
                if key == "heads" and row.run.endswith("830m"):
                    continue  # as printed they do not fit the hidden size; see the table's notes
                assert row.facts[key] == pytest.approx(value, rel=0.06), (row.run, key)
