"""Columns of many-shot in-context learning: accuracy by demonstrations, spread over orders."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from difftransformer.config.artifact_slices import ArtifactSlice, SectionSlice
from difftransformer.errors import UserError
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import Results, defined
from difftransformer.reporting.conditions import (
    evaluated,
    shared_setting,
    stand_in_title,
    training_note,
    trainings,
)
from difftransformer.reporting.document import Section
from difftransformer.reporting.measures.metric_columns import MetricColumn, metric_section

DECIMALS = 1
_MOST_SHOWN = 8
_MEASURED = re.compile(r"accuracy_n(\d+)")


def many_shot(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of accuracy in % by the number of demonstrations, and their plateau.

    Raises:
        UserError: a result is missing, or rows were asked different questions.
    """
    asked = evaluated(artifact, part, part.rows, results)
    task, numbers = _setting(asked, "task"), demonstrations(asked)
    shown = _spaced(numbers)
    # So many demonstrations of a stand-in are not as many of the set: nothing published beside.
    start = f"{task}_n" if _setting(asked, "data") != "generated" else f"{task}_generated_n"
    columns = [
        MetricColumn(f"{start}{n}", f"{n} ↑", _percent(n), hidden=n not in shown) for n in numbers
    ]
    late = plateau(numbers)
    columns.append(
        MetricColumn(
            f"{task}_plateau",
            "Plateau ↑",
            lambda result: fmean(accuracy(result, number) for number in late),
            compared=True,
        )
    )
    notes = [
        f"{_asked(asked)} Columns are numbers of demonstrations; the plateau is the mean over "
        f"{', '.join(map(str, late))}.",
        *_shared_notes(artifact, part, results, asked),
    ]
    titled = part.model_copy(update={"title": section_title(part, asked)})
    return metric_section(artifact, titled, results, columns, decimals=DECIMALS, notes=notes)


def many_shot_orders(artifact: ArtifactSlice, part: SectionSlice, results: Results) -> Section:
    """Make the section of the spread of accuracy, in %, over orders of the same demonstrations.

    Raises:
        UserError: a result is missing, or was not measured in several orders.
    """
    asked = evaluated(artifact, part, part.rows, results)
    name, number = orders_name(asked), demonstrations(asked)[-1]
    orders = len(by_order(asked[0]))

    def column(ending: str, header: str, value: Callable[[list[float]], float]) -> MetricColumn:
        return MetricColumn(f"{name}_{ending}", header, lambda one: value(by_order(one)))

    spreads = [
        column("margin", "Best − worst ↓", lambda found: max(found) - min(found)),
        column("deviation", "SD ↓", stdev),
    ]
    single = [column(f"o{order}", f"Order {order}", _item(order)) for order in range(orders)]
    columns = [
        column("mean", "Mean ↑", fmean),
        *(replace(one, compared=True) for one in spreads),
        column("best", "Best", max),
        column("worst", "Worst", min),
        *(replace(one, hidden=True) for one in single),
    ]
    notes = [
        f"{_asked(asked)} {orders} orders of the same {number} demonstrations. SD: standard "
        "deviation over orders. A model that guesses, or is always right, has no spread either.",
        *_shared_notes(artifact, part, results, asked),
    ]
    titled = part.model_copy(update={"title": section_title(part, asked)})
    return metric_section(artifact, titled, results, columns, decimals=DECIMALS, notes=notes)


def demonstrations(asked: Sequence[Result]) -> list[int]:
    """Numbers of demonstrations that all results were measured at, ascending.

    Raises:
        UserError: Results were measured at different numbers.
    """
    found = [
        sorted({int(match[1]) for name in one.metrics if (match := _MEASURED.fullmatch(name))})
        for one in asked
    ]
    for one, numbers in zip(asked, found, strict=True):
        if numbers != found[0]:
            raise UserError(
                f"{one.job_id} was measured at {numbers} demonstrations, {asked[0].job_id} at "
                f"{found[0]}: rerun the older one"
            )
    return found[0]


def plateau(numbers: Sequence[int]) -> list[int]:
    """Numbers that are at least half of the largest: declared, not read off the curves."""
    return [number for number in numbers if 2 * number >= numbers[-1]]


def accuracy(result: Result, number: int) -> float:
    """Accuracy in % at a number of demonstrations, mean over orders.

    Raises:
        UserError: it was not measured, or is undefined.
    """
    return 100 * defined(result, f"accuracy_n{number}")


def by_order(result: Result) -> list[float]:
    """Accuracy in % of each order at the largest number of demonstrations.

    Raises:
        UserError: There are fewer than two orders, or one has no accuracy.
    """
    number = demonstrations([result])[-1]
    orders = int(result.settings["config"]["order_seeds"])
    if orders < 2:
        raise UserError(f"suite '{result.suite}' has one order: a spread needs order_seeds of 2")
    return [100 * defined(result, f"accuracy_n{number}_o{order}") for order in range(orders)]


def orders_name(asked: Sequence[Result]) -> str:
    """Begin columns of a spread: the set and how its demonstrations are ordered."""
    return f"{_setting(asked, 'task')}_{_setting(asked, 'order')}"


def section_title(part: SectionSlice, asked: Sequence[Result]) -> str:
    """Title of a section, which says if another set stands in."""
    generated = _setting(asked, "data") == "generated"
    items = f"generated items, {_setting(asked, 'classes')} classes" if generated else None
    return stand_in_title(part.title, items)


def _percent(number: int) -> Callable[[Result], float]:
    return lambda result: accuracy(result, number)


def _item(order: int) -> Callable[[list[float]], float]:
    return lambda found: found[order]


def _spaced(numbers: Sequence[int]) -> list[int]:
    """At most so many numbers, from the first to the last; the csv has all."""
    last = len(numbers) - 1
    if last < _MOST_SHOWN:
        return list(numbers)
    return [numbers[round(place * last / (_MOST_SHOWN - 1))] for place in range(_MOST_SHOWN)]


def _asked(asked: Sequence[Result]) -> str:
    items, draws = _setting(asked, "test_items"), _setting(asked, "draws")
    what = (
        "Items are the labelled set itself, in the template of long-context-icl."
        if _setting(asked, "data") != "generated"
        else "Items are words of the classes that models were trained on; each draw gives "
        f"{_setting(asked, 'classes')} classes new labels, which the prompt alone tells."
        + _strays(_setting(asked, "stray_words"))
    )
    several = f" in each of {draws} draws of demonstrations" if draws > 1 else ""
    decoding = {"greedy": "greedily", "exact": "by the likeliest label"}
    return (
        f"{what} {items} items{several}, decoded {decoding[_setting(asked, 'decoding')]} among the "
        f"labels of the set; guessing gives {100 * defined(asked[0], 'chance'):.1f}."
    )


def _strays(share: float) -> str:
    if not share:
        return ""
    return f" {share:.0%} of the words of demonstrations are of another class; training has none."


def _shared_notes(
    artifact: ArtifactSlice, part: SectionSlice, results: Results, asked: Sequence[Result]
) -> list[str]:
    computed, given = (
        sum(defined(result, f"{kind}_positions") for result in asked)
        for kind in ("computed", "given")
    )
    return [
        "Items share the KV cache of their prompt: of the positions that they would have computed "
        f"alone, {computed / given:.0%} were.",
        training_note(part.rows, trainings(part.rows, artifact.seeds, results)),
    ]


def _setting(asked: Sequence[Result], name: str) -> Any:
    return shared_setting(asked, "config", name)
