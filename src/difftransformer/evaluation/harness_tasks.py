"""Tasks as they are bundled with lm-eval, on pinned or local data.

Only the folders of the tasks in question are read: the whole collection takes 20 seconds. A task in
an inline group is merged over the registered one, which a dict alone is not.
"""

from pathlib import Path
from typing import Any

import lm_eval.tasks
from lm_eval.api.task import Task
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.tasks import TaskManager

from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.suites.language_understanding import LanguageUnderstanding
from difftransformer.errors import DataError
from difftransformer.evaluation.benchmarks import check_items, task_files
from difftransformer.evaluation.item_files import first_line

_SPLITS = {"train": "training_split", "validation": "validation_split", "test": "test_split"}


def task_manager(tasks: list[str]) -> TaskManager:
    """Return a manager that knows the folders of these tasks."""
    bundled = Path(lm_eval.tasks.__file__).parent
    folders = sorted({LANGUAGE_TASKS[task].folder for task in tasks})
    return TaskManager(
        include_path=[str(bundled / name) for name in folders], include_defaults=False
    )


def load_task(manager: TaskManager, suite: LanguageUnderstanding, task: str, cache: Path) -> Task:
    """Load a task with its items.

    Args:
        manager: See `task_manager`.
        suite: Where the items come from.
        task: lm-eval's name of the task.
        cache: Folder for what `datasets` makes of local files.

    Raises:
        DataError: An item in a file cannot be asked, or the hub cannot be reached.
    """
    files = task_files(task, suite.data)
    for path in files.values():
        check_items(task, path)
    override: dict[str, Any] = (
        local_override(task, files, cache)
        if files
        else {"task": task, "dataset_kwargs": {"revision": LANGUAGE_TASKS[task].revision}}
    )
    override["num_fewshot"] = suite.num_fewshot
    try:
        group = {"group": "language_understanding", "task": [override]}
        loaded: Task = manager.load([group])["tasks"][task]
    except Exception as error:  # the hub, the network and `datasets` fail in many ways
        if files:
            raise
        raise DataError(
            f"{task}: {LANGUAGE_TASKS[task].dataset} cannot be had from the Hugging Face hub "
            f"({first_line(error)}); check the network, or set `benchmarks` to a folder with "
            "its items or to builtin"
        ) from None
    loaded.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return loaded


def local_override(task: str, files: dict[str, Path], cache: Path) -> dict[str, Any]:
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
    if "train" not in files:
        override["fewshot_split"] = "validation" if "validation" in files else asked
    return override
