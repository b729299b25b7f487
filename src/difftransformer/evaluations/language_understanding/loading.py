"""Load the tasks bundled with lm-eval, with items from pinned revisions or local files.

Only the folders of the evaluated tasks are read, since indexing all of lm-eval takes 20 seconds.
lm-eval merges a task config over the bundled one only inside a group, so each task is in a group.
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
"""Name of the group made around each task; lm-eval reports scores of groups of tasks under it."""

_SPLITS = {"train": "training_split", "validation": "validation_split", "test": "test_split"}
_FEWSHOT_SPLITS = ("dev", "train", "validation", "test")
"""Splits that few-shot examples may come from, in order of preference."""
_NEEDS_NLTK = {"length_constraints:number_sentences", "change_case:capital_word_frequency"}
"""Instructions of IFEval that lm-eval checks with nltk's sentence or word tokenizer."""

Loaded = dict[str, dict[str, Any]]
"""Tasks, groups, and the tasks of each group, as `lm_eval.evaluate` takes them."""


def task_manager(tasks: list[str]) -> TaskManager:
    """Return an lm-eval task manager that indexes only the folders of the given tasks."""
    bundled = Path(lm_eval.tasks.__file__).parent
    folders = sorted({LANGUAGE_TASKS[task].folder for task in tasks})
    return TaskManager(
        include_path=[str(bundled / name) for name in folders], include_defaults=False
    )


def load_task(manager: TaskManager, suite: Suite, task: str, cache: Path) -> Loaded:
    """Return a task with its items, or the tasks of a group, for `lm_eval.evaluate`.

    Args:
        manager: Manager from `task_manager`.
        suite: Settings of items, few-shot examples and answers.
        task: Name of the task, in `LANGUAGE_TASKS`.
        cache: Folder for the data that the library `datasets` converts from local files.

    Raises:
        DataError: An item in a file is damaged, the hub cannot be reached, or a library that
            checks the answers is missing.
    """
    spec, files = LANGUAGE_TASKS[task], task_files(task, suite.data)
    for path in files.values():
        check_items(task, path)
    group: dict[str, Any] = {"group": GROUP, "task": []}
    for member, member_files in _subtask_files(task, files, suite.data, cache).items():
        if files:
            override = local_override(member, member_files, cache, spec.bundled_examples)
        else:
            override = {"task": member, "dataset_kwargs": {"revision": spec.revision}}
        if suite.num_fewshot is not None:
            override["num_fewshot"] = suite.num_fewshot
        group["task"].append(override)
    with ExitStack() as guards:
        if not files:
            alternatives = "a folder with its items or to builtin"
            guards.enter_context(hub_items(task, spec.hub_path, alternatives))
        guards.enter_context(_offline_checkers(task, suite.data))
        loaded: Loaded = manager.load([group])
    for loaded_task in loaded["tasks"].values():
        loaded_task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
        if loaded_task.OUTPUT_TYPE == "generate_until":
            generation = {"max_gen_toks": suite.max_gen_toks(task)}
            loaded_task.set_config(key="generation_kwargs", value=generation, update=True)
    if task == IFEVAL:
        _require_nltk_data(loaded["tasks"][task].eval_docs)
    if not spec.subjects:
        return loaded | {"groups": {}, "group_map": {}}
    # Not in the dict, from which lm-eval would pass it on to the tasks.
    loaded["groups"][GROUP].aggregate_metric_list = [AggMetricConfig(metric=suite.metric(task))]
    return loaded


def local_override(
    task: str, files: dict[str, Path], cache: Path, bundled_examples: bool = False
) -> dict[str, Any]:
    """Return the task config with which a task bundled with lm-eval reads local files.

    Without training items the few-shot examples come from the validation items. lm-eval excludes
    the evaluated item from its own examples only in the `test_split`, so validation items are
    declared as the test split if they are evaluated.

    Args:
        task: Name of the task.
        files: Item file of each split.
        cache: Folder for the data that the library `datasets` converts from the files.
        bundled_examples: Whether few-shot examples come with lm-eval and not from a split.
    """
    evaluated_split = "test" if "test" in files else "validation"
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
    override["test_split"] = evaluated_split
    if not bundled_examples:
        override["fewshot_split"] = next(split for split in _FEWSHOT_SPLITS if split in files)
    return override


def _subtask_files(
    task: str, files: dict[str, Path], data: str, cache: Path
) -> dict[str, dict[str, Path]]:
    """Return the files of each lm-eval task; splits the files of a group by subject into ``cache``.

    Files of a user must hold evaluated items of all subjects; our builtin items hold some.
    """
    subtasks = LANGUAGE_TASKS[task].subtasks
    if not subtasks:
        return {task: files}
    if not files:
        return {member: {} for member in subtasks.values()}
    by_subtask: dict[str, dict[str, Path]] = {}
    for split, path in files.items():
        by_subject: dict[str, list[str]] = {}
        for location, item in read_items(path):
            if item["subject"] not in subtasks:
                raise DataError(
                    f"{location}: field 'subject' is {item['subject']!r}, but lm-eval's subjects "
                    f"of {task} are {', '.join(subtasks)}"
                )
            record = {key: value for key, value in item.items() if value is not None}
            by_subject.setdefault(item["subject"], []).append(json.dumps(record) + "\n")
        for subject, lines in by_subject.items():
            part = cache / subtasks[subject] / f"{split}.jsonl"
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text("".join(lines), encoding="utf-8")
            by_subtask.setdefault(subtasks[subject], {})[split] = part
    evaluated_split = "test" if "test" in files else "validation"
    complete = {
        member for member, subtask_files in by_subtask.items() if evaluated_split in subtask_files
    }
    lacking = sorted(set(subtasks.values()) - complete) if data != "builtin" else []
    if lacking := lacking or sorted(set(by_subtask) - complete):
        raise DataError(
            f"{files[evaluated_split]}: has no items of {', '.join(lacking)}; {task} "
            "is the mean over the items of all its subjects"
        )
    return {member: by_subtask[member] for member in subtasks.values() if member in by_subtask}


@contextmanager
def _offline_checkers(task: str, data: str) -> Iterator[None]:
    """Context in which imports of lm-eval download nothing that is not pinned.

    lm-eval downloads nltk's data at import, and from the hub a checker that runs generated programs
    with the environment of this process; `CodeChecker` replaces the latter.
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
    import nltk  # takes two seconds

    instructions = {name for item in items for name in item["instruction_id_list"]}
    affected = instructions & _NEEDS_NLTK
    if not affected:
        return
    try:
        nltk.data.find("tokenizers/punkt_tab")
    except LookupError:
        raise DataError(
            f"ifeval: lm-eval checks {', '.join(sorted(affected))} with nltk's punkt_tab, which is "
            "missing: run `python -m nltk.downloader punkt_tab` with network access, or put it "
            "below tokenizers/ in a folder that NLTK_DATA names"
        ) from None
