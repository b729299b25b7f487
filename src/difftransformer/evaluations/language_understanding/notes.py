"""What stands under the tables of language understanding."""

from difftransformer.config.evaluation import AVERAGE
from difftransformer.evaluations.language_understanding.settings import Options, Suite, metric_of
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS
from difftransformer.reporting.collect import defined
from difftransformer.reporting.view import View

NEARLY_ALL = 0.95
"""Share of items with the same answer from which on a model is said to give one answer."""


def label_of(task: str) -> str:
    """Head of the column of a task, or of the average."""
    return "Avg" if task == AVERAGE else LANGUAGE_TASKS[task].label


def _constant_note(view: View[Options], suite: Suite) -> list[str]:
    """Name where a row gives one answer to nearly everything: what it scores says nothing."""
    if not view.options.constant:
        return []
    found = {
        (row.label, task)
        for row in view.rows
        for one in view.evaluated(row)
        for task in suite.asked_tasks
        if defined(one, metric_of(task, "constant")) >= NEARLY_ALL
    }
    said = "; ".join(
        f"{label_of(task)}: {', '.join(labels)}"
        for task in suite.asked_tasks
        if (labels := [row.label for row in view.rows if (row.label, task) in found])
    )
    return [
        f"One answer to {NEARLY_ALL:.0%} of the items or more, in one seed at least: "
        f"{said or 'none'}."
    ]


def notes(view: View[Options]) -> list[str]:
    """Say what was asked, how it is scored, and what a reader must know of the numbers."""
    suite, everything = view.suite, view.evaluated()
    versions = {result.provenance.versions.get("lm-eval", "unknown") for result in everything}
    words = {
        "hub": "the benchmarks, from the Hugging Face hub, at a pinned revision where lm-eval or "
        "this suite names one",
        "builtin": "our own few in the benchmarks' schemas, not the benchmarks: do not compare "
        "with published numbers",
    }
    counts = {
        label_of(task): int(defined(everything[0], metric_of(task, "samples")))
        for task in suite.asked_tasks
    }
    amount = ", ".join(f"{label} {count}" for label, count in counts.items())
    if len(set(counts.values())) == 1:
        amount = f"{next(iter(counts.values()))} a task"
    said = [
        f"{_examples(suite)} before each item, by lm-eval {', '.join(sorted(versions))}; "
        f"{_scores(suite)}. In parentheses lm-eval's standard error over "
        "items.",
        f"Items: {words.get(suite.data, 'the benchmarks, from local files')}; {amount}.",
    ]
    cut = [defined(one, metric_of(task, "cut")) for one in everything for task in suite.asked_tasks]
    if any(cut):
        said.append(
            f"Requests longer than the model's context lose their first tokens: {min(cut):.0%} to "
            f"{max(cut):.0%} of a task's requests here."
        )
    if written := [label_of(task) for task in suite.asked_tasks if LANGUAGE_TASKS[task].room]:
        room = suite.max_new_tokens
        said.append(
            f"{' and '.join(written)} ask for written answers, which guessing counts as wrong"
            + (f"; they end after {room} tokens." if room is not None else ".")
        )
    if suite.code_note:
        said.append(f"Not asked, and not in the average: {suite.code_note}.")
    said += [view.training_note(), *view.difference_note()]
    return [*said, *_constant_note(view, suite)]


def _examples(suite: Suite) -> str:
    if suite.num_fewshot is not None:
        return f"{suite.num_fewshot} solved examples"
    given = [f"{label_of(one)} {suite.shots(one)}" for one in suite.asked_tasks if suite.shots(one)]
    return f"lm-eval's own numbers of solved examples ({', '.join([*given, 'others 0'])})"


def _scores(suite: Suite) -> str:
    """Name the metrics: acc, and where it is another one."""
    by_metric: dict[str, list[str]] = {}
    for task in suite.asked_tasks:
        if (name := suite.metric(task)) != "acc":
            by_metric.setdefault(name, []).append(label_of(task))
    others = [f"{name} for {' and '.join(labels)}" for name, labels in by_metric.items()]
    return ", and ".join(["acc", *others])
