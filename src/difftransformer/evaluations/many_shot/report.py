"""Many-shot learning as columns: accuracy by demonstrations, and its spread over orders."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from statistics import stdev
from typing import Any

from difftransformer.evaluations.many_shot.figure import (
    by_order,
    figure,
    measured,
    orders_name,
    plateau,
    titled,
)
from difftransformer.evaluations.many_shot.settings import Options, accuracy_metric
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Section
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

__all__ = ["figure", "section"]

DECIMALS = 1
_MOST_SHOWN = 8


def section(view: View[Options]) -> Section:
    """Make the section, in %: by the number of demonstrations, or the spread over their orders."""
    metrics, note = _spread(view) if view.options.by == "order" else _numbers(view)
    notes = [f"{_asked(view)} {note}", view.training_note()]
    return metric_section(titled(view), metrics, decimals=DECIMALS, notes=notes)


def _numbers(view: View[Options]) -> tuple[list[Metric], str]:
    """Accuracy by the number of demonstrations, and their plateau."""
    suite, numbers = view.suite, measured(view.suite, view.evaluated())
    shown, late = _spaced(numbers), plateau(numbers)
    # So many demonstrations of a stand-in are not as many of the set: nothing published beside.
    start = f"{suite.task}_generated_n" if suite.generated else f"{suite.task}_n"
    metrics = [
        Metric(f"{start}{n}", f"{n} ↑", {accuracy_metric(n): 100.0}, hidden=n not in shown)
        for n in numbers
    ]
    mean, overall = (
        {accuracy_metric(number): 100.0 / len(some) for number in some} for some in (late, numbers)
    )
    any_class = suite.selection == "random"  # as Dex prints it, with a mean over all numbers
    metrics.append(
        Metric(f"{suite.task}_plateau", "Plateau ↑", mean, hidden=any_class, compared=not any_class)
    )
    metrics.append(
        Metric(f"{suite.task}_average", "Avg ↑", overall, hidden=not any_class, compared=any_class)
    )
    return metrics, (
        "Columns are numbers of demonstrations, "
        + ("of any class." if any_class else "as equally many of each class as there are.")
        + f" The plateau is the mean over {', '.join(map(str, late))}."
    )


def _spread(view: View[Options]) -> tuple[list[Metric], str]:
    """Spread of accuracy over orders of the same demonstrations."""
    suite, number = view.suite, measured(view.suite, view.evaluated())[-1]

    def column(ending: str, header: str, of: Callable[[list[float]], float], **how: Any) -> Metric:
        name = f"{orders_name(suite)}_{ending}"
        return Metric(name, header, lambda one: of(by_order(suite, one)), **how)

    orders = [(f"o{n}", f"Order {n}", itemgetter(n)) for n in range(suite.order_seeds)]
    metrics = [
        Metric(f"{orders_name(suite)}_mean", "Mean ↑", {accuracy_metric(number): 100.0}),
        column("margin", "Best − worst ↓", lambda found: max(found) - min(found), compared=True),
        column("deviation", "SD ↓", stdev, compared=True),
        column("best", "Best", max),
        column("worst", "Worst", min),
        *(column(*one, hidden=True) for one in orders),
    ]
    return metrics, (
        f"{suite.order_seeds} orders of the same {number} demonstrations. SD: standard "
        "deviation over orders. A model that guesses, or is always right, has no spread either."
    )


def _spaced(numbers: Sequence[int]) -> list[int]:
    """At most so many numbers, from the first to the last; the csv has all."""
    last = len(numbers) - 1
    if last < _MOST_SHOWN:
        return list(numbers)
    return [numbers[round(place * last / (_MOST_SHOWN - 1))] for place in range(_MOST_SHOWN)]


def _asked(view: View[Options]) -> str:
    suite = view.suite
    what = "Items are the labeled set itself, in the template of long-context-icl."
    if suite.generated:
        what = (
            "Items are words of the classes that models were trained on; each draw gives "
            f"{suite.classes} classes new labels, which the prompt alone tells."
        )
    if suite.word_noise:
        what += (
            f" {suite.word_noise:.0%} of the words of demonstrations are of another class; "
            "training has none."
        )
    several = f" in each of {suite.draws} draws of demonstrations" if suite.draws > 1 else ""
    return (
        f"{what} {suite.test_items} items{several}, decoded greedily among the labels of the set; "
        f"guessing gives {100 * defined(view.evaluated()[0], 'chance'):.1f}."
    )
