"""The rows of table 6 on retrieval, from results with known times."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from built_tables import read
from fake_configs import RESOLVER, SCALE, resolved_artifact
from fake_results import PROBE_EVERY, STEPS, TOKENS_PER_STEP, FakeResults
from pictures import picture_of

from difftransformer.config.resolved_artifacts import ResolvedArtifact
from difftransformer.errors import UserError
from difftransformer.evaluations.recall.settings import AT_BUDGET
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.evidence import contrast_evidence
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.table_job import build_table, make_table

UNITS = ("steps", "tokens")


def test_times_of_seeds_that_do_not_learn_retrieval_are_censored(
    fake: FakeResults, tmp_path: Path
) -> None:
    build_table(resolved_artifact("table6_recall"), fake.results, tmp_path / "recall")
    cells = read(tmp_path / "recall.csv")
    assert cells["recall_transformer", "learned"]["value"] == "0.0"
    assert cells["recall_transformer", "steps_to_learn"]["value"] == ""
    assert cells["recall_transformer", "steps_to_learn_censored"]["value"] == "3.0"
    assert cells["recall_diff", "learned"]["value"] == "1.0"
    text = (tmp_path / "recall.md").read_text()
    assert "0/3 (0.00 to 0.56)" in text and "> 1.2M; 0 of 3 learn" in text.replace("\\", "")
    assert "not learned after 1.2M tokens counts as 1.2M, the shortest training" in text
    for end in ("", "_min", "_max"):
        steps, tokens = (cells["recall_diff", f"{u}_to_learn{end}"]["value"] for u in UNITS)
        assert float(tokens) == float(steps) * TOKENS_PER_STEP


def timed(results: Results, row: str, *times: tuple[int | None, int]) -> Results:
    """Give the seeds of a row steps to learn retrieval and steps of training."""
    retrained = {
        (row, seed): results.trainings[row, seed].model_copy(
            update={
                "metrics": results.trainings[row, seed].metrics
                | {"steps_to_learn": learned, "learned": int(learned is not None)}
                | {"steps": steps, "tokens": steps * 10}
            }
        )
        for seed, (learned, steps) in enumerate(times)
    }
    return replace(results, trainings={**results.trainings, **retrained})


@pytest.fixture
def mixed(fake: FakeResults) -> Results:
    """Two rows whose runs end at times of their own; all others never learn."""
    results = load_results(fake.results, SCALE)
    for row in resolved_artifact("table6_recall").sections[0].rows:
        results = timed(results, row.run, *[(None, 900)] * 3)
    results = timed(results, "recall_diff", (200, 300), (400, 500), (None, 700))
    return timed(results, "recall_transformer", (800, 900), (300, 400), (None, 900))


def test_a_seed_that_learns_at_the_first_step_counts_no_tokens(mixed: Results) -> None:
    results = timed(mixed, "recall_diff", (0, 300), (400, 500), (None, 700))
    table = make_table(resolved_artifact("table6_recall"), results)
    cell = table.find("recall_diff", "tokens_to_learn_mean")
    assert cell is not None and cell.value == (0 + 4000 + 7000) / 3


def test_a_seed_that_does_not_learn_is_censored_at_the_end_of_its_training(mixed: Results) -> None:
    table = make_table(resolved_artifact("table6_recall"), mixed)

    def values(column: str) -> list[float | None]:
        cells = [table.find(run, column) for run in ("recall_diff", "recall_transformer")]
        return [None if cell is None else cell.value for cell in cells]

    assert values("tokens_to_learn") == [4000, 8000]
    # One seed is censored at 7000 tokens, so the one that learned at 8000 counts as 7000.
    assert values("tokens_to_learn_mean") == [(2000 + 4000 + 7000) / 3, (7000 + 3000 + 7000) / 3]


def test_the_probe_before_learning_is_a_lower_bound_of_the_time(mixed: Results) -> None:
    artifact = resolved_artifact("recall_evidence")
    claim = RESOLVER.registry.claims["V1.wide_heads"]
    (contrast,) = claim.contrasts
    results = timed(mixed, contrast.row, (200, 300), (400, 500), (None, 700))
    table = make_table(artifact, results)
    tested = contrast_evidence(contrast, claim, "V1.wide_heads", artifact, table, results)
    assert tested.values == [200, 400, None] and tested.baseline_values == [800, 300, None]
    assert tested.lower_bounds == [200 - PROBE_EVERY, 400 - PROBE_EVERY, 700]
    assert tested.baseline_lower_bounds == [800 - PROBE_EVERY, 300 - PROBE_EVERY, 900]


@pytest.mark.parametrize(
    ("budget", "step"), [(200 * TOKENS_PER_STEP, 200), (219 * TOKENS_PER_STEP, 200), (10**9, STEPS)]
)
def test_accuracy_at_equal_tokens_is_that_of_the_last_probe_within_the_budget(
    budget: int, step: int, fake: FakeResults
) -> None:
    """A training that ended before the budget is compared by its last probe."""
    table = make_table(with_budget(budget), load_results(fake.results, SCALE))
    cell = table.find("recall_diff", AT_BUDGET)
    assert cell is not None and len(cell.seeds) == 3
    for result in cell.seeds:
        history = pd.read_csv(fake.root / f"runs/recall_diff/{result.seed}/history.csv")
        assert result.value == history.set_index("step").accuracy_n4[step]
    assert cell.value == pytest.approx(np.mean([result.value for result in cell.seeds]))


def test_a_budget_before_the_first_probe_is_refused(fake: FakeResults) -> None:
    with pytest.raises(UserError, match=r"no probe .* 1\.5K tokens"):
        make_table(with_budget(TOKENS_PER_STEP), load_results(fake.results, SCALE))


def test_claims_at_equal_tokens_use_the_registered_budget(fake: FakeResults) -> None:
    artifact, name = resolved_artifact("recall_evidence"), "V1.equal_tokens"
    claim, results = RESOLVER.registry.claims[name], load_results(fake.results, SCALE)
    (contrast,) = claim.contrasts
    tested = contrast_evidence(
        contrast, claim, name, artifact, make_table(artifact, results), results
    )
    series = results.histories.series("recall_diff", 0, "accuracy_n4")
    assert (
        tested.values[0] == series.values[series.steps.index(983_040 // TOKENS_PER_STEP // 20 * 20)]
    )
    # 480 steps of the batches of scale tiny, as the definition says.
    recall = RESOLVER.run("recall_diff").training
    assert 480 * recall.batch_size * recall.seq_len == 983_040


def with_budget(budget: int) -> ResolvedArtifact:
    """Return the artifact recall_evidence with another budget."""
    artifact = resolved_artifact("recall_evidence")
    (part,) = artifact.sections
    options = part.options.model_copy(update={"budget": budget})
    return artifact.model_copy(update={"sections": [part.model_copy(update={"options": options})]})


def test_restricted_mean_is_the_area_below_the_curve_that_is_drawn(
    mixed: Results, fake: FakeResults
) -> None:
    artifact = resolved_artifact("table6_recall", "figure")
    figure = picture_of(artifact, mixed, fake)
    (axes,) = (axes_ for axes_ in figure.axes if axes_.get_title("left").startswith("Seeds that"))
    color = SectionContext(artifact, artifact.sections[0], mixed).styles["recall_transformer"].color
    curve, stroke = (line for line in axes.lines if line.get_color() == color)
    times, shares = curve.get_xdata(), np.subtract(curve.get_ydata(), curve.get_ydata()[0] - 1)
    assert times.tolist() == [0, 3000, 8000, 9000] and stroke.get_xdata() == [9000]
    assert shares.tolist() == pytest.approx([1, 2 / 3, 1 / 3, 1 / 3])
    area = float(np.sum(np.diff(np.minimum(times, 7000)) * shares[:-1]))
    assert area == pytest.approx((7000 + 3000 + 7000) / 3)
