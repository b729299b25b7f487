"""A section of metrics: means over seeds, paired differences, and what a column may be told."""

from dataclasses import replace

import pytest
from fake_results import FakeResults
from fake_slices import artifact_slice

from difftransformer.config.evaluation import Options
from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Section
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

LOSS = Metric("valid", "Loss", "loss")


@pytest.fixture(scope="module")
def view(fake: FakeResults) -> View[Options]:
    artifact = artifact_slice("table6")
    return View(artifact, artifact.sections[0], load_results(fake.results, "tiny"))


def made(view: View[Options], *metrics: Metric, **options: bool) -> Section:
    return metric_section(view, metrics, decimals=3, notes=["How."], **options)


def headers(section: Section) -> list[str]:
    return [column.header for column in section.visible()]


def test_a_cell_is_the_mean_over_seeds_with_the_published_number(view: View[Options]) -> None:
    cell = made(view, LOSS).cell("diff", "valid")
    losses = [one.metrics["loss"] for one in view.evaluated() if one.run == "diff"]
    assert cell is not None
    assert list(cell.by_seed().values()) == losses
    assert cell.value == pytest.approx(sum(map(float, filter(None, losses))) / 3)
    assert (cell.n, cell.paper_value) == (3, 3.062)


def test_differences_are_in_the_csv_and_shown_where_asked(view: View[Options]) -> None:
    kept, shown = made(view, LOSS), made(view, replace(LOSS, compared=True))
    assert headers(kept) == ["Loss"] and headers(shown) == ["Loss", "Δ Loss"]
    assert {column.id for column in kept.columns} == {"valid", "valid_difference"}
    one, two, difference = (
        kept.cell(*place)
        for place in (("diff", "valid"), ("transformer", "valid"), ("diff", "valid_difference"))
    )
    assert one is not None and two is not None and difference is not None
    assert difference.by_seed() == {
        seed: value - two.by_seed()[seed] for seed, value in one.by_seed().items()
    }
    assert kept.cell("transformer", "valid_difference") is None
    assert kept.notes[0] == "How." and kept.notes[-1].startswith("Δ: paired difference")


def test_rows_that_nothing_is_compared_with_have_no_differences(view: View[Options]) -> None:
    rows = [row.model_copy(update={"against": None}) for row in view.rows]
    alone = View[Options](view.artifact, view.part.model_copy(update={"rows": rows}), view.results)
    section = made(alone, LOSS)
    assert [column.id for column in section.columns] == ["valid"] and section.notes == ["How."]


def test_facts_stand_before_what_was_measured(view: View[Options]) -> None:
    section = made(view, LOSS, facts=True)
    assert headers(section) == ["Heads", "d", "GroupNorm", "λ by layer", "Loss"]
    heads = section.cell("diff", "heads")
    assert heads is not None and heads.value == 2


def test_lambdas_stand_beside_the_rows_that_have_some(view: View[Options]) -> None:
    section = made(view, LOSS, facts=True)
    together, first, second = (
        section.cell("diff", name) for name in ("lambda", "lambda_l0", "lambda_l1")
    )
    assert together is not None and first is not None and second is not None
    assert (together.text, [one.text for one in together.seeds][2]) == (
        "0.21, −0.35",
        "0.22, −0.35",
    )
    assert together.value is None  # it is no number
    assert (first.value, second.value) == (pytest.approx(0.21), pytest.approx(-0.35))
    assert {column.id for column in section.columns} >= {"lambda_l0", "lambda_l1"}
    assert section.cell("transformer", "lambda") is section.cell("transformer", "lambda_l0") is None
    assert any(note.startswith("λ by layer: ") for note in section.notes)
    plain = [row for row in view.rows if row.run.startswith("transformer")]
    without = made(view.having(rows=plain), LOSS, facts=True)
    assert headers(without) == ["Heads", "d", "GroupNorm", "Loss"]
    assert not any("λ" in note for note in without.notes)


def test_a_column_may_be_computed_hidden_remarked_and_undefined(view: View[Options]) -> None:
    first = made(
        view,
        Metric("twice", "2×", lambda result: 2 * float(result.metrics["loss"] or 0), lambda _: "!"),
        Metric("never", "No", lambda _: None, hidden=True),
    )
    loss, twice = made(view, LOSS).cell("diff", "valid"), first.cell("diff", "twice")
    assert loss is not None and loss.value is not None and twice is not None
    assert twice.value == pytest.approx(2 * loss.value)
    assert all(seed.text.endswith(" !") for seed in twice.seeds)
    never = first.cell("diff", "never")
    assert never is not None and (never.value, never.text, never.n) == (None, "n/a", 0)
    assert headers(first) == ["2×"]


def test_a_metric_that_was_not_measured_is_named_with_the_nearest(view: View[Options]) -> None:
    with pytest.raises(UserError, match=r"no metric 'los' \(nearest of its \d+: loss"):
        made(view, Metric("los", "Loss"))


def test_a_column_may_be_a_sum_of_metrics(view: View[Options]) -> None:
    gap = Metric("gap", "Gap", {"ar_hit_loss": 100.0, "others_loss": -100.0})
    first = view.evaluated()[0]
    hit, others = (float(first.metrics[f"{name}_loss"] or 0) for name in ("ar_hit", "others"))
    assert gap.value(first) == pytest.approx(100 * (hit - others))
    nothing = first.model_copy(update={"metrics": first.metrics | {"others_loss": None}})
    assert gap.value(nothing) is None
