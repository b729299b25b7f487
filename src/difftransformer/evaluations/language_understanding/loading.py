"""Tasks of lm-eval with their items, ready to be asked.

Tasks are those bundled with lm-eval, on pinned or local data. Only the folders of the tasks in
question are read: the whole collection takes 20 seconds. A task in an inline group is merged over
the registered one, which a dict alone is not.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lm_eval.tasks
from lm_eval.config.group import AggMetricConfig
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.tasks import TaskManager

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import HUB, hub_items, read_items
from difftransformer.evaluations.language_understanding.generated_code import CodeChecker
from difftransformer.evaluations.language_understanding.item_checks import check_items
from difftransformer.evaluations.language_understanding.settings import Suite
from difftransformer.evaluations.language_understanding.tasks import LANGUAGE_TASKS, task_files
from difftransformer.extras import install

IFEVAL = "ifeval"
GROUP = "language_understanding"
"""Name of the inline group; of a group of lm-eval its scores are the group's."""

_SPLITS = {"train": "training_split", "validation": "validation_split", "test": "test_split"}
_EXAMPLES = ("dev", "train", "validation", "test")
"""Splits that solved examples are taken from, best first."""
_COUNTED_BY_NLTK = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
"""Instructions of IFEval that lm-eval checks with nltk's sentences or words."""

Loaded = dict[str, dict[str, Any]]
"""What `lm_eval.evaluate` takes: tasks, groups and what is in these."""


def task_manager(tasks: list[str]) -> TaskManager:
    """Return a manager that knows the folders of these tasks."""
    bundled = Path(lm_eval.tasks.__file__).parent
    folders = sorted({LANGUAGE_TASKS[task].folder for task in tasks})
    return TaskManager(
        include_path=[str(bundled / name) for name in folders], include_defaults=False
    )


def load_task(manager: TaskManager, suite: Suite, task: str, cache: Path) -> Loaded:
    """Load a task, or the tasks of a group, with its items.

    ``cache`` gets what `datasets` makes of local files.

    Raises:
        DataError: An item in a file cannot be asked, the hub cannot be reached, or what checks
            the answers is missing.
    """
    known, files = LANGUAGE_TASKS[task], task_files(task, suite.data)
    for path in files.values():
        check_items(task, path)
    group: dict[str, Any] = {"group": GROUP, "task": []}
    for member, own in _members(task, files, suite.data, cache).items():
        if files:
            override = local_override(member, own, cache, known.own_examples)
        else:
            override = {"task": member, "dataset_kwargs": {"revision": known.revision}}
        if suite.num_fewshot is not None:
            override["num_fewshot"] = suite.num_fewshot
        group["task"].append(override)
    with ExitStack() as guards:
        if not files:
            where = "a folder with its items or to builtin"
            guards.enter_context(hub_items(task, known.dataset, where))
        guards.enter_context(_checkers(task, suite.data))
        loaded: Loaded = manager.load([group])
    for one in loaded["tasks"].values():
        one.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
        if one.OUTPUT_TYPE == "generate_until":
            room = {"max_gen_toks": suite.room(task)}
            one.set_config(key="generation_kwargs", value=room, update=True)
    if task == IFEVAL:
        _require_nltk_data(loaded["tasks"][task].eval_docs)
    if not known.subjects:
        return loaded | {"groups": {}, "group_map": {}}
    # In the dict it would go on to the tasks, which do not know it.
    loaded["groups"][GROUP].aggregate_metric_list = [AggMetricConfig(metric=suite.metric(task))]
    return loaded


def local_override(
    task: str, files: dict[str, Path], cache: Path, own_examples: bool = False
) -> dict[str, Any]:
    """Return what makes a bundled task read files.

    Without training items solved examples come from the validation items. lm-eval leaves the asked
    item out of its own examples only if it is of the `test_split`; so where the validation items
    are asked too, they are declared as that.
    """
    asked = "test" if "test" in files else "validation"
    override: dict[str, Any] = {
        "task": task,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {
            "data_files": {split: str(path.resolve()) for split, path in files.items()},
            "cache_dir": str(cache),
        },
    }
    override |= {key: split if split in files else None for split, key in _SPLITS.items()}
    override["test_split"] = asked
    if not own_examples:
        override["fewshot_split"] = next(split for split in _EXAMPLES if split in files)
    return override


def _members(
    task: str, files: dict[str, Path], data: str, cache: Path
) -> dict[str, dict[str, Path]]:
    """Files by task of lm-eval: those of a group are cut by subject into ``cache``.

    A folder has all subjects, and each of them what is asked; of our own items there are some.
    """
    members = LANGUAGE_TASKS[task].members
    if not members:
        return {task: files}
    if not files:
        return {member: {} for member in members.values()}
    found: dict[str, dict[str, Path]] = {}
    for split, path in files.items():
        by_subject: dict[str, list[str]] = {}
        for place, item in read_items(path):
            if item["subject"] not in members:
                raise DataError(
                    f"{place}: field 'subject' is {item['subject']!r}, which lm-eval does not know "
                    f"in {task}; it knows {', '.join(members)}"
                )
            known = {key: value for key, value in item.items() if value is not None}
            by_subject.setdefault(item["subject"], []).append(json.dumps(known) + "\n")
        for subject, lines in by_subject.items():
            part = cache / members[subject] / f"{split}.jsonl"
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text("".join(lines), encoding="utf-8")
            found.setdefault(members[subject], {})[split] = part
    asked = "test" if "test" in files else "validation"
    whole = {member for member, own in found.items() if asked in own}
    lacking = sorted(set(members.values()) - whole) if data != "builtin" else []
    if lacking := lacking or sorted(set(found) - whole):
        raise DataError(
            f"{files[asked]}: has no items of {', '.join(lacking)}; {task} is the mean over the "
            "items of all its subjects"
        )
    return {member: found[member] for member in members.values() if member in found}


@contextmanager
def _checkers(task: str, data: str) -> Iterator[None]:
    """Context in which the imports of lm-eval download nothing unpinned.

    lm-eval downloads nltk's data at import, and from the hub a checker that runs generated programs
    with the whole environment; `CodeChecker` replaces it.
    """
    with ExitStack() as changes:
        try:
            if task == IFEVAL:
                from langdetect import DetectorFactory

                DetectorFactory.seed = 0  # without a seed, its result for a short answer is random
            if task == IFEVAL and data != HUB:
                changes.enter_context(patch("nltk.download"))
            if LANGUAGE_TASKS[task].runs_code:
                changes.enter_context(patch("evaluate.load", return_value=CodeChecker()))
            yield
        except ModuleNotFoundError as error:
            raise DataError(
                f"{task}: lm-eval checks its answers with {error.name}, which is not installed: "
                + install("eval")
            ) from None


def _require_nltk_data(items: Any) -> None:
    import nltk  # two seconds, which the other tasks do not have to wait

    asked = {name for item in items for name in item["instruction_id_list"]}
    counted = asked & _COUNTED_BY_NLTK
    if not counted:
        return
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        raise DataError(
            f"ifeval: lm-eval checks {', '.join(sorted(counted))} with nltk's punkt_tab, which is "
            "not there: run `python -m nltk.downloader punkt_tab` where there is a network, or put "
            "it below tokenizers/ of a folder that NLTK_DATA names"
        ) from None
