"""Table of many-shot learning: accuracy by demonstrations, or its spread over orders."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from statistics import stdev
from typing import Any

from difftransformer.evaluations.many_shot.figure import (
    accuracy_by_order,
    figure,
    measured_shots,
    order_column,
    plateau,
    with_proxy_title,
)
from difftransformer.evaluations.many_shot.settings import Options, accuracy_metric
from difftransformer.reporting.collect import require_metric
from difftransformer.reporting.document import Section
from difftransformer.reporting.section_context import SectionContext
from difftransformer.reporting.sections import MetricColumn, metric_section

__all__ = ["figure", "section"]

DECIMALS = 1
_MAX_COLUMNS = 8


def section(context: SectionContext[Options]) -> Section:
    """Return the report section of accuracy in % by number of demonstrations, or its spread."""
    metrics, note = _spread(context) if context.options.by == "order" else _numbers(context)
    notes = [f"{_items_note(context)} {note}", context.training_note()]
    return metric_section(with_proxy_title(context), metrics, decimals=DECIMALS, notes=notes)


def _numbers(context: SectionContext[Options]) -> tuple[list[MetricColumn], str]:
    """Return columns of accuracy by the number of demonstrations and of its plateau, and a note."""
    suite, numbers = context.suite, measured_shots(context.suite, context.eval_results())
    columns, late = _spaced(numbers), plateau(numbers)
    # A proxy has classes of its own, so its columns have names without published values.
    start = f"{suite.task}_generated_n" if suite.generated else f"{suite.task}_n"
    metrics = [
        MetricColumn(
            f"{start}{n}", f"{n} ↑", {accuracy_metric(n): 100.0}, csv_only=n not in columns
        )
        for n in numbers
    ]
    any_class = suite.selection == "random"  # as Dex prints it, with a mean over all numbers
    for name, header, shots, shown_first in (
        ("plateau", "Plateau ↑", late, not any_class), ("average", "Avg ↑", numbers, any_class)
    ):  # fmt: skip
        mean = {accuracy_metric(number): 100.0 / len(shots) for number in shots}
        metrics.append(
            MetricColumn(f"{suite.task}_{name}", header, mean, csv_only=not shown_first,
                         show_difference=shown_first)
        )  # fmt: skip
    return metrics, (
        "Columns are numbers of demonstrations, "
        + ("of any class." if any_class else "balanced over the classes.")
        + f" The plateau is the mean over {', '.join(map(str, late))}."
    )


def _spread(context: SectionContext[Options]) -> tuple[list[MetricColumn], str]:
    """Return columns of the spread over orders of the same demonstrations, and a note."""
    suite, number = context.suite, measured_shots(context.suite, context.eval_results())[-1]

    def column(
        ending: str, header: str, of: Callable[[list[float]], float], **how: Any
    ) -> MetricColumn:
        name = f"{order_column(suite)}_{ending}"
        return MetricColumn(
            name, header, lambda result: of(accuracy_by_order(suite, result)), **how
        )

    orders = [(f"o{n}", f"Order {n}", itemgetter(n)) for n in range(suite.order_seeds)]
    metrics = [
        MetricColumn(f"{order_column(suite)}_mean", "Mean ↑", {accuracy_metric(number): 100.0}),
        column(
            "margin",
            "Best − worst ↓",
            lambda values: max(values) - min(values),
            show_difference=True,
        ),
        column("deviation", "SD ↓", stdev, show_difference=True),
        column("best", "Best", max),
        column("worst", "Worst", min),
        *(column(*order, csv_only=True) for order in orders),
    ]
    return metrics, (
        f"{suite.order_seeds} orders of the same {number} demonstrations. SD: standard "
        "deviation over orders. A model at chance or at 100% has no spread either."
    )


def _spaced(numbers: Sequence[int]) -> list[int]:
    """Return at most `_MAX_COLUMNS` of the numbers, evenly spaced; the csv has all."""
    last = len(numbers) - 1
    if last < _MAX_COLUMNS:
        return list(numbers)
    return [numbers[round(index * last / (_MAX_COLUMNS - 1))] for index in range(_MAX_COLUMNS)]


def _items_note(context: SectionContext[Options]) -> str:
    suite = context.suite
    items = "Items are those of the labeled set, in the template of long-context-icl."
    if suite.generated:
        items = (
            "Items are words of the classes that models were trained on; each draw gives "
            f"{suite.classes} classes new labels, which only the prompt shows."
        )
    if suite.word_noise:
        items += (
            f" {suite.word_noise:.0%} of the words of demonstrations are of another class; "
            "training has no such noise."
        )
    draws = f" in each of {suite.draws} draws of demonstrations" if suite.draws > 1 else ""
    return (
        f"{items} n = {suite.test_items} items{draws}, decoded greedily among the set's labels; "
        f"guessing gives {100 * require_metric(context.eval_results()[0], 'chance'):.1f}."
    )
