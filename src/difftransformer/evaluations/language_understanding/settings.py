"""What is asked about language understanding."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, model_validator

from difftransformer.config import evaluation
from difftransformer.config.base import setting
from difftransformer.config.evaluation import LONGEST_ITEM, Reading
from difftransformer.config.evaluation import Suite as Base
from difftransformer.config.generated_rows import GeneratedRows
from difftransformer.config.validation import known_names
from difftransformer.evaluation.item_files import BUILTIN
from difftransformer.evaluations.language_understanding.tasks import (
    DIFF_TASKS,
    LANGUAGE_TASKS,
    task_files,
)
from difftransformer.models.config import ModelConfig


def metric_of(task: str, part: str = "") -> str:
    """Metric of a task or of the average over them: its accuracy, or a part beside that."""
    return f"{task}_{part}" if part else task


class Options(evaluation.Options):
    """What a section shows beside the tasks and their average."""

    without: Annotated[list[str], AfterValidator(known_names(LANGUAGE_TASKS, "task"))] = setting(
        [], meaning="Tasks that a second average leaves out; none: there is no second"
    )
    numbered: bool = setting(
        True,
        meaning="Whether columns are named by the number of solved examples, for artifacts with "
        "several; else by their tasks alone",
    )
    constant: bool = setting(
        False,
        meaning="Whether a note names the tasks in which a row gives nearly all items one answer; "
        "the shares are in the csv, those of the tasks of `without` in the table, too",
    )


class Suite(Base):
    """Tasks of lm-eval, by its own evaluator: one number a task and their mean.

    Measures any causal language model, also one from elsewhere (`pretrained`).
    """

    measures_pretrained: ClassVar[bool] = True
    repeatable: ClassVar[bool] = True

    kind: Literal["language_understanding"] = setting(meaning="Which evaluation the suite is.")
    tasks: Annotated[list[str], AfterValidator(known_names(LANGUAGE_TASKS, "task"))] = setting(
        list(DIFF_TASKS),
        meaning="Tasks by lm-eval's names; the average is over all of them.",
        source="arXiv 2410.05258, tables 1 and 8",
        min_length=1,
    )
    metrics: dict[str, Literal["acc", "acc_norm"]] = setting(
        {},
        meaning="Metrics of single tasks where they are not those of arXiv 2410.05258.",
        source="arXiv 2505.16333 does not say; inferred from its baselines",
    )
    num_fewshot: int | None = setting(
        0,
        meaning="Solved examples before each question; null: as many as lm-eval gives by itself.",
        unit="examples",
        ge=0,
    )
    limit: int | None = setting(
        None,
        meaning="First so many items of each task, and of each subject of MMLU and AGIEval; null: "
        "all.",
        unit="items",
        ge=2,
    )
    max_new_tokens: int | None = setting(
        None,
        meaning="Most room for a written answer; null: lm-eval's, which is 1280 for IFEval, 256 "
        "for GSM8K and MBPP+, 32 for AGIEval's problems.",
        unit="tokens",
        gt=0,
    )
    run_generated_code: bool = setting(
        False,
        meaning="Whether programs that a model wrote are run on this machine: in a temporary "
        "folder, without the environment's variables and with limits of time, memory and file "
        "size, but not in a sandbox: they can read your files and use the network. Without it "
        "tasks that need it, mbpp_plus, are not asked.",
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

    @property
    def asked_tasks(self) -> list[str]:
        """Its tasks, without those that it may not run what a model writes for."""
        return [
            task
            for task in self.tasks
            if self.run_generated_code or not LANGUAGE_TASKS[task].runs_code
        ]

    @property
    def proxy(self) -> str | None:
        """What stands in for the benchmarks; None where the items are theirs."""
        return "our own few items" if self.data == BUILTIN else None

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """It always does."""
        return True

    @model_validator(mode="after")
    def _metrics_are_of_its_tasks(self) -> Self:
        if foreign := sorted(set(self.metrics) - set(self.tasks)):
            raise ValueError(f"metrics: {', '.join(foreign)} are not among its tasks")
        if written := [task for task in self.metrics if LANGUAGE_TASKS[task].room]:
            raise ValueError(f"metrics: {written[0]} is not scored by acc or acc_norm alone")
        normed = [task for task, metric in self.metrics.items() if metric == "acc_norm"]
        if plain := [task for task in normed if not LANGUAGE_TASKS[task].normed]:
            raise ValueError(f"metrics: lm-eval scores {plain[0]} by acc alone")
        if not self.asked_tasks:
            raise ValueError(f"tasks: nothing is left to ask; {self.code_note}")
        return self

    @property
    def code_note(self) -> str:
        """Why some tasks are not asked; empty where all are."""
        left = [task for task in self.tasks if task not in self.asked_tasks]
        if not left:
            return ""
        return (
            f"{', '.join(left)} would run programs that the model wrote; "
            "run_generated_code: true of the suite allows it"
        )

    def metric(self, task: str) -> str:
        """Metric of lm-eval that counts for a task."""
        return self.metrics.get(task, LANGUAGE_TASKS[task].metric)

    def shots(self, task: str) -> int:
        """Solved examples before an item of a task."""
        return LANGUAGE_TASKS[task].shots if self.num_fewshot is None else self.num_fewshot

    def room(self, task: str) -> int:
        """Tokens for a written answer of a task; 0 where answers are given."""
        own = LANGUAGE_TASKS[task].room
        return own if self.max_new_tokens is None else min(own, self.max_new_tokens)

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """A question must fit before a written answer."""
        task = max(self.asked_tasks, key=self.room)
        if self.room(task) < max_positions:
            return None
        return (
            f"{task} has room for {self.room(task)} tokens of answer, which leaves none for a "
            f"question in its max_positions {max_positions}: set max_new_tokens"
        )

    def files(self) -> dict[str, Path]:
        """Files of all tasks that are asked."""
        return {
            f"{task}/{split}": path
            for task in self.asked_tasks
            for split, path in task_files(task, self.data).items()
        }

    @property
    def planned_tokens(self) -> int | None:
        """Questions behind their solved examples, each with all of its answers."""
        return sum(
            LANGUAGE_TASKS[task].tokens * (1 + self.shots(task)) for task in self.asked_tasks
        )

    def reading(self, model: ModelConfig, longest: int) -> Reading:
        """Questions behind their solved examples, a batch at a time."""
        shots, room = (max(map(one, self.asked_tasks)) for one in (self.shots, self.room))
        length = min(model.max_positions, LONGEST_ITEM * (1 + shots))
        total = min(model.max_positions, length + room)
        rows = self.batch_size * length
        lower = self.lower(*["max_new_tokens"] * (self.max_new_tokens is not None))
        return Reading(self.batch_size, length, total, rows, lower, cached=bool(room))
