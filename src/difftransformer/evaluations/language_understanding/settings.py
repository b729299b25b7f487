"""Settings of the language understanding evaluation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import LONGEST_ITEM, Reading
from difftransformer.config.evaluation import Suite as Base
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.config.validation import names_from
from difftransformer.evaluation.item_files import BUILTIN
from difftransformer.evaluations.language_understanding.tasks import (
    DIFF_TASKS,
    LANGUAGE_TASKS,
    task_files,
)
from difftransformer.models.config import ModelConfig


def task_metric(task: str, part: str = "") -> str:
    """Return the name of a task's accuracy metric, or of another part such as "stderr"."""
    return f"{task}_{part}" if part else task


class Options(evaluation.Options):
    """Report options: columns of a section besides the tasks and their average."""

    excluded_tasks: Annotated[list[str], AfterValidator(names_from(LANGUAGE_TASKS, "task"))] = (
        setting([], meaning="Tasks that a second average excludes; empty: no second average")
    )
    fewshot_in_columns: bool = setting(
        True,
        meaning="Whether column ids contain the number of few-shot examples, for artifacts with "
        "several; else only the task",
    )
    most_common_share: bool = setting(
        False,
        meaning="Whether a note names the tasks in which a model gives nearly all items the same "
        "answer; the shares are in the csv, and in the table for `excluded_tasks`",
    )


class Suite(Base):
    """Suite of lm-eval tasks, run by lm-eval's evaluator: an accuracy per task, and their mean.

    It evaluates any causal language model, also an external pretrained one (`pretrained`).
    """

    measures_pretrained: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    kind: Literal["language_understanding"] = setting(meaning="Which evaluation the suite is.")
    tasks: Annotated[list[str], AfterValidator(names_from(LANGUAGE_TASKS, "task"))] = setting(
        list(DIFF_TASKS),
        meaning="Tasks by lm-eval's names; the average is over all of them.",
        source="arXiv 2410.05258, tables 1 and 8",
        min_length=1,
    )
    metrics: dict[str, Literal["acc", "acc_norm"]] = setting(
        {},
        meaning="Metric by task, where it differs from arXiv 2410.05258.",
        source="arXiv 2505.16333 does not say; inferred from its baselines",
    )
    num_fewshot: int | None = setting(
        0,
        meaning="Few-shot examples before each question; null: lm-eval's default.",
        unit="examples",
        ge=0,
    )
    limit: int | None = setting(
        None,
        meaning="Number of items per task, and per subject of MMLU and AGIEval, the first ones; "
        "null: all.",
        unit="items",
        ge=2,
    )
    max_new_tokens: int | None = setting(
        None,
        meaning="Longest generated answer; null: lm-eval's, which is 1280 for IFEval, 256 for "
        "GSM8K and MBPP+, 32 for AGIEval's problems.",
        unit="tokens",
        gt=0,
    )
    run_generated_code: bool = setting(
        False,
        meaning="Whether to run programs that a model wrote on this machine: in a temporary "
        "folder, without environment variables and with limits of time, memory and file size. This "
        "is no sandbox: they can read your files and use the network. If false, mbpp_plus is "
        "skipped.",
    )
    data: str = setting(
        "hub",
        meaning="'hub': pinned revisions from the Hugging Face hub; 'builtin': a few items of our "
        "own; else a folder with <task>/<split>.jsonl or .jsonl.gz. `benchmarks` of config.yaml "
        "overrides it.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "sdpa",
        meaning="Attention backend of the models trained here; the `lm_eval` command uses sdpa for "
        "an exported checkpoint.",
    )

    @property
    def evaluated_tasks(self) -> list[str]:
        """Names of the evaluated tasks; those that run generated code only if this is allowed."""
        return [
            task
            for task in self.tasks
            if self.run_generated_code or not LANGUAGE_TASKS[task].runs_code
        ]

    @property
    def proxy(self) -> str | None:
        """Name of the items that replace the benchmarks, or None for the benchmarks themselves."""
        return "a few items of our own" if self.data == BUILTIN else None

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Return whether `benchmarks` of config.yaml sets the source of items: always true."""
        return True

    @model_validator(mode="after")
    def _metrics_are_of_its_tasks(self) -> Self:
        if unknown := sorted(set(self.metrics) - set(self.tasks)):
            raise ValueError(f"metrics: {', '.join(unknown)} are not among `tasks`")
        if generative := [task for task in self.metrics if LANGUAGE_TASKS[task].max_gen_toks]:
            raise ValueError(f"metrics: {generative[0]} has neither acc nor acc_norm")
        normed = [task for task, metric in self.metrics.items() if metric == "acc_norm"]
        if without_norm := [task for task in normed if not LANGUAGE_TASKS[task].has_acc_norm]:
            raise ValueError(f"metrics: lm-eval scores {without_norm[0]} by acc only")
        if not self.evaluated_tasks:
            raise ValueError(f"tasks: no task is left to evaluate; {self.skipped_note}")
        return self

    @property
    def skipped_note(self) -> str:
        """Reason why some tasks are skipped; empty if none is."""
        skipped = [task for task in self.tasks if task not in self.evaluated_tasks]
        if not skipped:
            return ""
        return (
            f"{', '.join(skipped)} would run programs that the model wrote; set "
            "run_generated_code: true in the suite to allow it"
        )

    def metric(self, task: str) -> str:
        """Return the name of lm-eval's metric for a task, such as "acc"."""
        return self.metrics.get(task, LANGUAGE_TASKS[task].metric)

    def fewshot(self, task: str) -> int:
        """Return the number of few-shot examples before each item of a task."""
        return LANGUAGE_TASKS[task].num_fewshot if self.num_fewshot is None else self.num_fewshot

    def max_gen_toks(self, task: str) -> int:
        """Return the maximum tokens of a generated answer of a task; 0 for multiple choice."""
        task_limit = LANGUAGE_TASKS[task].max_gen_toks
        return task_limit if self.max_new_tokens is None else min(task_limit, self.max_new_tokens)

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Return why a model's context is too short for a generated answer, or None."""
        task = max(self.evaluated_tasks, key=self.max_gen_toks)
        if self.max_gen_toks(task) < max_positions:
            return None
        return (
            f"{task} has answers of up to {self.max_gen_toks(task)} tokens, which leave none of "
            f"max_positions {max_positions} for a question: set max_new_tokens"
        )

    def files(self) -> dict[str, Path]:
        """Return the local item files of all evaluated tasks, with keys {task}/{split}."""
        return {
            f"{task}/{split}": path
            for task in self.evaluated_tasks
            for split, path in task_files(task, self.data).items()
        }

    @property
    def planned_tokens(self) -> int | None:
        """Approximate tokens of all questions, with their few-shot examples and answers."""
        return sum(
            LANGUAGE_TASKS[task].total_tokens * (1 + self.fewshot(task))
            for task in self.evaluated_tasks
        )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Return the sizes that determine the suite's memory: a batch of few-shot questions."""
        tasks = self.evaluated_tasks
        shots, answer_tokens = max(map(self.fewshot, tasks)), max(map(self.max_gen_toks, tasks))
        length = min(model.max_positions, LONGEST_ITEM * (1 + shots))
        total = min(model.max_positions, length + answer_tokens)
        rows = self.batch_size * length
        lower = self.lower(*["max_new_tokens"] * (self.max_new_tokens is not None))
        return Reading(self.batch_size, length, total, rows, lower, cached=bool(answer_tokens))
