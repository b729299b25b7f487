"""Settings of the suite of language understanding."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from difftransformer.config.base import setting
from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.suites.base import SuiteSettings, distinct
from difftransformer.config.validation import nearest


def _known_tasks(tasks: list[str]) -> list[str]:
    for task in tasks:
        if task not in LANGUAGE_TASKS:
            raise ValueError(f"unknown task '{task}'{nearest(task, LANGUAGE_TASKS)}")
    return distinct(tasks)


class LanguageUnderstanding(SuiteSettings):
    """Multiple-choice tasks of lm-eval, by its own evaluator: one number a task and their mean.

    Measures any causal language model, also one from elsewhere (`pretrained`).
    """

    kind: Literal["language_understanding"] = setting(meaning="Which measurement the suite is.")
    tasks: Annotated[list[str], AfterValidator(_known_tasks)] = setting(
        list(LANGUAGE_TASKS),
        meaning="Tasks by lm-eval's names; the average is over all of them.",
        source="arXiv 2410.05258, tables 1 and 8",
        min_length=1,
    )
    num_fewshot: int = setting(
        0, meaning="Solved examples before each question.", unit="examples", ge=0
    )
    limit: int | None = setting(
        None, meaning="First so many items of each task; null: all.", unit="items", ge=2
    )
    data: str = setting(
        "hub",
        meaning="'hub': pinned revisions from the Hugging Face hub; 'builtin': a few items of our "
        "own; else a folder with <task>/<split>.jsonl or .jsonl.gz. `benchmarks` of config.yaml "
        "wins over it.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "sdpa",
        meaning="Attention of the models trained here; sdpa is what the `lm_eval` command runs on "
        "an exported checkpoint.",
    )
