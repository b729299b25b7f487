"""The context of a section: rows that may share a table, their results and common settings."""

import json

import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults, rewrite

from difftransformer.config.evaluation import Options
from difftransformer.config.resolved_artifacts import ResolvedRow
from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.section_context import SectionContext


def context(
    fake: FakeResults, *rows: ResolvedRow, seeds: tuple[int, ...] = (0,)
) -> SectionContext[Options]:
    """The first section of a table, or some rows of our own."""
    artifact = resolved_artifact("table6", seeds=seeds)
    part = artifact.sections[0]
    if rows:
        part = part.model_copy(update={"rows": list(rows)})
    return SectionContext(artifact, part, load_results(fake.results, "tiny"))


def remeasured(fake: FakeResults, run: str, **settings: object) -> None:
    path = fake.root / f"evaluations/validation_slices/{run}/0.json"
    result = json.loads(path.read_text())
    result["settings"]["config"] |= settings
    rewrite(path, json.dumps(result))


TWO = (ResolvedRow(run="transformer", label="T"), ResolvedRow(run="diff", label="D"))


@pytest.fixture
def two(small: FakeResults) -> FakeResults:
    """Two rows, one seed."""
    for row in TWO:
        small.language_model(row.run, 0)
    return small


def test_settings_that_all_rows_share_are_typed(two: FakeResults) -> None:
    suite = context(two, *TWO).suite
    assert (suite.kind, suite.n, suite.max_count) == ("validation_slices", 2, 50)


def test_rows_with_different_settings_fail_with_a_one_line_error(two: FakeResults) -> None:
    remeasured(two, "diff", max_count=7)
    with pytest.raises(UserError, match=r"config\.max_count is 50 in .* and 7 in ") as error:
        _ = context(two, *TWO).suite
    line = str(error.value)
    assert "\n" not in line and line.endswith("rerun the older job")
    assert "transformer-validation_slices-0" in line and "diff-validation_slices-0" in line


def test_a_setting_of_only_one_row_fails_with_a_one_line_error(two: FakeResults) -> None:
    remeasured(two, "diff", windows=3)
    with pytest.raises(UserError, match=r"config\.windows is None in .* and 3 in "):
        _ = context(two, *TWO).suite


def test_rows_may_differ_in_device_backend_and_precision(two: FakeResults) -> None:
    remeasured(two, "diff", batch_size=1, device="cuda", backend="sdpa", precision="bfloat16")
    assert context(two, *TWO).suite.n == 2


def test_a_pretrained_row_has_one_result_whatever_the_seeds(two: FakeResults) -> None:
    two.language_model("transformer", 1)
    elsewhere = TWO[1].model_copy(update={"pretrained": True})
    section_context = context(two, TWO[0], elsewhere, seeds=(0, 1))
    assert [(result.run, result.seed) for result in section_context.eval_results()] == [
        ("transformer", 0), ("transformer", 1), ("diff", 0),
    ]  # fmt: skip


def test_comparisons_are_named(two: FakeResults) -> None:
    first, second = TWO
    third = ResolvedRow(run="third", label="3", baseline="diff")
    paired = second.model_copy(update={"baseline": "transformer"})
    assert not context(two, *TWO).has_baselines
    assert context(two, first, paired).difference_formula() == "row − T"
    assert context(two, first, paired, third).difference_formula() == "D − T; 3 − D"
