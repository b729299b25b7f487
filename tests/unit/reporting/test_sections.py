"""A section of metrics: means over seeds, paired differences, and options of a column."""

from dataclasses import replace

import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults

from difftransformer.config.evaluation import Options
from difftransformer.errors import UserError
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.document import Section
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

LOSS = MetricColumn("valid", "Loss", "loss")


@pytest.fixture(scope="module")
def context(fake: FakeResults) -> SectionContext[Options]:
    artifact = resolved_artifact("table6")
    return SectionContext(artifact, artifact.sections[0], load_results(fake.results, "tiny"))


def made(context: SectionContext[Options], *metrics: MetricColumn, **options: bool) -> Section:
    return metric_section(context, metrics, decimals=3, notes=["How."], **options)


def headers(section: Section) -> list[str]:
    return [column.header for column in section.visible()]


def test_a_cell_is_the_mean_over_seeds_with_the_published_number(
    context: SectionContext[Options],
) -> None:
    cell = made(context, LOSS).cell("diff", "valid")
    losses = [result.metrics["loss"] for result in context.eval_results() if result.run == "diff"]
    assert cell is not None
    assert list(cell.by_seed().values()) == losses
    assert cell.value == pytest.approx(sum(map(float, filter(None, losses))) / 3)
    assert (cell.n, cell.paper_value) == (3, 3.062)


def test_differences_are_in_the_csv_and_shown_where_asked(context: SectionContext[Options]) -> None:
    hidden, visible = made(context, LOSS), made(context, replace(LOSS, show_difference=True))
    assert headers(hidden) == ["Loss"] and headers(visible) == ["Loss", "Δ Loss"]
    assert {column.id for column in hidden.columns} == {"valid", "valid_difference"}
    diff, transformer, difference = (
        hidden.cell(*key)
        for key in (("diff", "valid"), ("transformer", "valid"), ("diff", "valid_difference"))
    )
    assert diff is not None and transformer is not None and difference is not None
    assert difference.by_seed() == {
        seed: value - transformer.by_seed()[seed] for seed, value in diff.by_seed().items()
    }
    assert hidden.cell("transformer", "valid_difference") is None
    assert hidden.notes[0] == "How." and hidden.notes[-1].startswith("Δ: difference paired by seed")


def test_rows_that_nothing_is_compared_with_have_no_differences(
    context: SectionContext[Options],
) -> None:
    rows = [row.model_copy(update={"baseline": None}) for row in context.rows]
    alone = SectionContext[Options](
        context.artifact, context.section.model_copy(update={"rows": rows}), context.results
    )
    section = made(alone, LOSS)
    assert [column.id for column in section.columns] == ["valid"] and section.notes == ["How."]


def test_facts_stand_before_what_was_measured(context: SectionContext[Options]) -> None:
    section = made(context, LOSS, facts=True)
    assert headers(section) == ["Heads", "d", "GroupNorm", "λ by layer", "Loss"]
    heads = section.cell("diff", "heads")
    assert heads is not None and heads.value == 2


def test_lambdas_stand_beside_the_rows_that_have_some(context: SectionContext[Options]) -> None:
    section = made(context, LOSS, facts=True)
    together, first, second = (
        section.cell("diff", name) for name in ("lambda", "lambda_l0", "lambda_l1")
    )
    assert together is not None and first is not None and second is not None
    assert (together.text, [seed.text for seed in together.seeds][2]) == (
        "0.21, −0.35",
        "0.22, −0.35",
    )
    assert together.value is None  # it is no number
    assert (first.value, second.value) == (pytest.approx(0.21), pytest.approx(-0.35))
    assert {column.id for column in section.columns} >= {"lambda_l0", "lambda_l1"}
    assert section.cell("transformer", "lambda") is section.cell("transformer", "lambda_l0") is None
    assert any(note.startswith("λ by layer: ") for note in section.notes)
    plain = [row for row in context.rows if row.run.startswith("transformer")]
    without = made(context.replace(rows=plain), LOSS, facts=True)
    assert headers(without) == ["Heads", "d", "GroupNorm", "Loss"]
    assert not any("λ" in note for note in without.notes)


def test_a_column_may_be_computed_hidden_remarked_and_undefined(
    context: SectionContext[Options],
) -> None:
    first = made(
        context,
        MetricColumn(
            "twice", "2×", lambda result: 2 * float(result.metrics["loss"] or 0), lambda _: "!"
        ),
        MetricColumn("never", "No", lambda _: None, csv_only=True),
    )
    loss, twice = made(context, LOSS).cell("diff", "valid"), first.cell("diff", "twice")
    assert loss is not None and loss.value is not None and twice is not None
    assert twice.value == pytest.approx(2 * loss.value)
    assert all(seed.text.endswith(" !") for seed in twice.seeds)
    never = first.cell("diff", "never")
    assert never is not None and (never.value, never.text, never.n) == (None, "n/a", 0)
    assert headers(first) == ["2×"]


def test_a_metric_that_was_not_measured_is_named_with_the_nearest(
    context: SectionContext[Options],
) -> None:
    with pytest.raises(UserError, match=r"no metric 'los' \(nearest of its \d+: loss"):
        made(context, MetricColumn("los", "Loss"))


def test_a_column_may_be_a_sum_of_metrics(context: SectionContext[Options]) -> None:
    gap = MetricColumn("gap", "Gap", {"ar_hit_loss": 100.0, "others_loss": -100.0})
    first = context.eval_results()[0]
    hit, others = (float(first.metrics[f"{name}_loss"] or 0) for name in ("ar_hit", "others"))
    assert gap.value(first) == pytest.approx(100 * (hit - others))
    nothing = first.model_copy(update={"metrics": first.metrics | {"others_loss": None}})
    assert gap.value(nothing) is None
