"""Settings of the suite of contextual hallucination."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from difftransformer.config.base import setting
from difftransformer.config.data import RecallConfig
from difftransformer.config.hallucination_sets import (
    HALLUCINATION_SETS,
    TASKS,
    Task,
    fact_set,
)
from difftransformer.config.suites.base import SuiteSettings, distinct
from difftransformer.config.validation import nearest


def _known_sets(names: list[str]) -> list[str]:
    for name in names:
        if name not in HALLUCINATION_SETS:
            raise ValueError(f"unknown set '{name}'{nearest(name, HALLUCINATION_SETS)}")
    return distinct(names)


class Hallucination(SuiteSettings):
    """Summaries and answers from a given document, generated greedily and kept for the judges.

    Nothing is judged here: `judge_answers` reads what this suite leaves, so that another judge
    needs no new generation.
    """

    kind: Literal["hallucination"] = setting(meaning="Which measurement the suite is.")
    format: Literal["text", "recall"] = setting(
        "recall",
        meaning="text: documents of `sets`, for models of text; recall: rows of the builtin corpus "
        "`recall`, whose facts are its key-value pairs, for models trained on that. There "
        "an answer states the value of a given key, a summary goes on from there with pairs of the "
        "model's own choice, and what is true is known exactly.",
    )
    sets: Annotated[list[str], Field(min_length=1), AfterValidator(_known_sets)] = setting(
        list(HALLUCINATION_SETS),
        meaning="Sets of format text, by name.",
        source="arXiv 2410.05258v2, table 4",
    )
    data: str = setting(
        "hub",
        meaning="Documents of format text: 'hub': pinned revisions from the Hugging Face hub; else "
        "a folder with <set>/<split>.jsonl or .jsonl.gz. `benchmarks` of config.yaml wins over it.",
    )
    samples: int = setting(
        100,
        meaning="Documents for each set.",
        unit="documents",
        source="arXiv 2410.05258v2, section 3.6 (figures of table 4 are hundredths)",
        gt=0,
    )
    samples_seed: int = setting(
        40_001,
        meaning="Seed that draws the documents, or makes the rows: the same for every run and "
        "seed, so that differences are paired.",
        ge=0,
    )
    needles: Annotated[
        list[Annotated[int, Field(gt=0)]], Field(min_length=1), AfterValidator(distinct)
    ] = setting(
        [2, 4, 6],
        meaning="Facts in a row of format recall, a set for each number and task; more than the "
        "dataset's max_needles is out of distribution.",
        unit="pairs",
    )
    statements: int = setting(
        4,
        meaning="Pairs in a summary of format recall; the first one's key is given.",
        unit="pairs",
        gt=0,
    )
    summary_tokens: int = setting(
        256,
        meaning="Room for a summary of format text.",
        unit="tokens",
        source="ours; the paper states no length",
        gt=0,
    )
    answer_tokens: int = setting(
        64, meaning="Room for an answer of format text.", unit="tokens", gt=0
    )
    chunk: int = setting(
        4096, meaning="Positions of a prompt computed at one time.", unit="tokens", gt=0
    )

    @property
    def set_tasks(self) -> dict[str, Task]:
        """Every set with what it asks for, in the order of the table."""
        if self.format == "text":
            return {name: HALLUCINATION_SETS[name].task for name in self.sets}
        return {fact_set(task, number): task for task in TASKS for number in self.needles}

    def misfit(self, max_positions: int, recall: RecallConfig | None) -> str | None:
        """Say in one line why the suite does not fit a model and its dataset; None if it does.

        Args:
            max_positions: Longest context of the model.
            recall: Recall settings of the dataset; None for a dataset of text.
        """
        if (self.format == "recall") != (recall is not None):
            here = "text" if recall is None else "recall rows"
            return f"format: {self.format} does not go with a dataset of {here}"
        if recall is None:
            room = max(self.summary_tokens, self.answer_tokens)
            if 2 * room > max_positions:
                return (
                    f"summary_tokens, answer_tokens: {room} leave less than half of its "
                    f"max_positions {max_positions} to the document"
                )
            return None
        most = min(recall.num_keys, recall.num_values, recall.haystack_length // 2)
        if max(self.needles) > most:
            return f"needles: {max(self.needles)} do not fit a row of its dataset, at most {most}"
        if recall.haystack_length + 2 * self.statements > max_positions:
            return f"statements: {self.statements} do not fit its max_positions {max_positions}"
        return None
