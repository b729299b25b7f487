"""Multi-needle retrieval as columns and a picture, by setting [N, R] or by context length."""

from typing import TYPE_CHECKING

from difftransformer.measurements.needles import by_length, by_setting
from difftransformer.measurements.needles.by_length import several_lengths
from difftransformer.measurements.needles.by_setting import answers_interval
from difftransformer.measurements.needles.settings import Options, accuracy_name, group_name
from difftransformer.provenance.result import Result
from difftransformer.reporting.collect import defined
from difftransformer.reporting.document import Section
from difftransformer.reporting.numbers import plain
from difftransformer.reporting.sections import Metric, metric_section
from difftransformer.reporting.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMAT = {
    "recall": "Needles are keys with values of the builtin recall corpus in its own haystack; "
    "each question is a prompt of its own on the same context.",
    "text": "Needles are English sentences in held-out text, the template LWM's.",
}


def section(view: View[Options]) -> Section:
    """Make the section; depths have columns in the csv.

    Raises:
        UserError: a result is missing, rows were asked different questions, or at one length alone.
    """
    suite, (needles, asked) = view.suite, view.suite.pairs[0]
    if view.options.by == "setting":
        metrics = _by_setting(view)
        what = "Accuracy: mean share of the needles asked for that are answered."
    else:
        metrics = _by_length(view)
        what = (
            f"N = {needles}, R = {asked}; columns are context lengths in tokens, mean over the "
            "depths."
        )
    computed, given = (
        sum(defined(result, f"{kind}_positions") for result in view.evaluated())
        for kind in ("computed", "given")
    )
    notes = [
        f"{_FORMAT[suite.format]} {suite.samples} prompts at each of the depths "
        f"{', '.join(map(str, suite.depths))}% of the first needle asked for; the others stand at "
        f"random places. {what} A cell opens to its seeds, each with Wilson's 95% "
        "interval of its answers, which takes them as independent.",
        "Prompts share the KV cache of what they have in common: "
        f"{computed / given:.0%} of their positions were computed.",
        view.training_note(),
    ]
    return metric_section(view, metrics, decimals=2, notes=notes)


def figure(view: View[Options]) -> "Figure":
    """Draw the figure of the first section."""
    if view.options.by == "setting":
        return by_setting.figure(view)
    return by_length.figure(view)


def _by_setting(view: View[Options]) -> list[Metric]:
    """Columns of the settings, of their depths, and of what the last loses to the first."""
    suite, columns = view.suite, []
    for pair in suite.pairs:
        name, header = group_name(pair), f"N = {pair[0]}, R = {pair[1]}"
        columns.append(_accuracy(name, f"{header} ↑", name))
        for depth in suite.depths:
            at = group_name(pair, depth=depth)
            columns.append(_accuracy(at, f"{header}, depth {depth}%", at, hidden=True))
    if len(suite.pairs) > 1:
        first, last = accuracy_name(suite.pairs[0]), accuracy_name(suite.pairs[-1])
        columns.append(
            Metric("drop", "Drop ↓", lambda one: defined(one, first) - defined(one, last))
        )
    return columns


def _by_length(view: View[Options]) -> list[Metric]:
    """Columns of the lengths and their depths, of all, and of `longest`, the last of them."""
    suite = view.suite
    lengths, pair = several_lengths(view), suite.pairs[0]

    def at(length: int, name: str, header: str, arrow: str = "") -> list[Metric]:
        mean = _accuracy(name, header + arrow, group_name(pair, length), hidden=not arrow)
        return [mean] + [
            _accuracy(f"{name}_d{depth}", f"{header}, depth {depth}%",
                      group_name(pair, length, depth), hidden=True)
            for depth in suite.depths
        ]  # fmt: skip

    columns = [one for length in lengths for one in at(length, f"l{length}", str(length), " ↑")]
    columns.append(_accuracy("average", "All ↑", group_name(pair)))
    return columns + at(lengths[-1], "longest", "Longest")


def _accuracy(name: str, header: str, group: str, *, hidden: bool = False) -> Metric:
    """Column of an accuracy, whose seeds tell their intervals."""

    def remark(result: Result) -> str:
        low, high = (plain(end, 2) for end in answers_interval(result, group))
        return f"({low} to {high}, {defined(result, f'asked_{group}'):.0f} asked)"

    return Metric(name, header, f"accuracy_{group}", remark, hidden)
