"""Rows with overridden settings are marked, and have no published values and no tests."""

from dataclasses import replace

import pytest
from answers import claims_on, verdicts_of
from fake_configs import RESOLVER, SCALE, artifact_resolver, facts, resolved_artifact
from fake_results import FakeResults

from difftransformer.config.overrides import overrides
from difftransformer.config.resolve import ConfigResolver
from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.planning.plan import Plan
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.formats.html import to_html
from difftransformer.reporting.formats.latex import to_latex
from difftransformer.reporting.formats.markdown import to_markdown
from difftransformer.reporting.table_job import make_table

INITIAL = {"model": {"attention": {"lambda_init": 0.3}}}
WORDS = "model.attention.lambda_init = 0.3"
LABEL = f"DIFF, λ_init = 0.8 (overrides: {WORDS})"


def resolver(changes: object) -> ConfigResolver:
    return ConfigResolver.load(RESOLVER.folder, {"scale": SCALE, "overrides": changes})


def sliced(name: str, changed: dict[str, str]) -> ResolvedArtifact:
    declared = replace(artifact_resolver(), overrides=lambda run: changed.get(run, ""))
    facts_by_run = {run: facts(run) for run in declared.labels}
    return declared.resolve(name, "table", scale=SCALE, seeds=(0, 1, 2), facts=facts_by_run)


@pytest.mark.parametrize(
    ("changes", "run", "words"),
    [
        ({"diff_lambda_0_8": INITIAL}, "diff_lambda_0_8", WORDS),
        ({"diff_lambda_0_8": INITIAL}, "diff", ""),
        ({"diff": {"training": {"lr": 8.0e-3}}}, "diff", ""),  # what it has anyway
        ({"diff": {"training": {"lr": 1e-3}}}, "diff", "training.lr = 0.001"),
        # What continues a changed run, or is sized after one, is changed with it.
        ({"diff": {"training": {"lr": 1e-3}}}, "long_diff", "diff: training.lr = 0.001"),
        (
            {"transformer": {"model": {"ffn_dim": 400}}},
            "adapted_dex",
            "transformer: model.ffn_dim = 400",
        ),
    ],
)
def test_overridden_settings_of_a_run_are_listed(changes: object, run: str, words: str) -> None:
    assert overrides(resolver(changes), run) == words


def test_a_plan_names_the_override_and_takes_the_published_value_away() -> None:
    plan = Plan.load(RESOLVER.folder, {"scale": SCALE, "overrides": {"diff_lambda_0_8": INITIAL}})
    slice = plan.artifacts.resolve("table6", "table")
    rows = {row.run: row for part in slice.sections for row in part.rows}
    assert rows["diff_lambda_0_8"].label == LABEL
    assert rows["diff"].label == "DIFF" and slice.overrides == {"diff_lambda_0_8": WORDS}
    assert slice.paper is not None
    assert "diff" in slice.paper.rows and "diff_lambda_0_8" not in slice.paper.rows
    assert plan._about("diff_lambda_0_8").label == LABEL  # on the page of the runs


def test_no_format_shows_an_overridden_row_as_the_published_one(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    plain = make_table(resolved_artifact("table6"), results)
    table = make_table(sliced("table6", {"diff_lambda_0_8": WORDS}), results)
    for text in (to_markdown(table), to_html(table)):
        assert LABEL in text or LABEL.replace("_", "\\_") in text
    assert "overrides: model.attention.lambda" in to_latex(table)
    frame = table.frame()
    of_row = frame[frame.row == "diff_lambda_0_8"]
    assert (of_row.overrides == WORDS).all() and of_row.paper_value.isna().all()
    others = frame[frame.row == "diff"]
    assert (others.overrides == "").all() and others.paper_value.notna().any()
    before = plain.frame()
    assert "overrides" not in before  # nothing is overridden
    assert before[before.row == "diff_lambda_0_8"].paper_value.notna().any()
    assert list(before.value) == list(frame.value)


def test_no_claim_is_tested_on_an_overridden_row(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    tested = claims_on(tables=[sliced("evidence", {"diff_lambda_0": WORDS})])
    verdicts = verdicts_of(tested, results)
    assert {name for name, verdict in verdicts.items() if verdict.verdict == "not testable"} == {
        "V1.loss_subtraction"
    }
    assert WORDS in verdicts["V1.loss_subtraction"].reason
    assert verdicts.keys() > {"V1.loss_subtraction"}


def test_an_overridden_reference_has_no_published_difference(fake: FakeResults) -> None:
    artifact = sliced("v2_loss", {"transformer_gqa": WORDS})
    table = make_table(artifact, load_results(fake.results, SCALE))
    cell = table.find("diff_v2", "valid_difference")
    assert cell is not None and cell.overrides == WORDS and cell.paper_text is None


def test_a_row_of_a_family_is_overridden_with_a_member() -> None:
    plan = Plan.load(
        RESOLVER.folder, {"scale": SCALE, "overrides": {"diff_size_64": {"training": {"lr": 1e-3}}}}
    )
    slice = plan.artifacts.resolve("figure3a", "table")
    (grid_row,) = {
        grid_row.run: grid_row
        for part in slice.sections
        for grid_row in part.grid_rows
        if grid_row.overrides
    }.values()
    assert grid_row.run == "diff" and grid_row.overrides == "diff_size_64: training.lr = 0.001"
    assert "diff" in slice.overrides and "overrides: diff_size_64" in grid_row.label
