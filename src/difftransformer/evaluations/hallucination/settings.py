"""What is asked about contextual hallucination: the six sets of table 4, and the settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator

from difftransformer.config.base import Sizes, setting
from difftransformer.config.evaluation import PromptSuite
from difftransformer.config.folders import require_inside
from difftransformer.config.generated_rows import GeneratedRows, RecallConfig
from difftransformer.config.validation import known_names
from difftransformer.evaluation.item_files import BUILTIN, ENDINGS, HUB, items_folder

Task = Literal["summary", "answer"]
"""What a model is asked for: the summary of a document, or the answer to a question about it."""

TASKS: dict[Task, str] = {"summary": "Summary", "answer": "Answer"}
"""Tasks in the order of the tables, with their names."""


class HallucinationSet(NamedTuple):
    """One set.

    Attributes:
        label: Head of its column.
        task: What is asked for.
        license: License of the data, as its card states it; texts may have holders of their own.
        dataset: Where it lies on the Hugging Face hub.
        revision: Commit of that data set.
        document: Field with the document; a list of passages is joined.
        reference: Field with the reference; of a list the first.
        question: Field with the question; none for summaries.
        config: Configuration of the data set; None where `member` is set, or for the default.
        member: File inside the data set's data.zip; None: the data set itself is loaded.
    """

    label: str
    task: Task
    license: str
    dataset: str
    revision: str
    document: tuple[str, ...]
    reference: tuple[str, ...]
    question: tuple[str, ...] = ()
    config: str | None = None
    member: str | None = None


def _longbench(label: str, task: Task, name: str, license: str, *extra: str) -> HallucinationSet:
    return HallucinationSet(
        label, task, license, "zai-org/LongBench", "5e628be450b7e67fb7ae6e201bd6d8f7056f7672",
        ("context", *extra), ("answers", "answer", "summary"),
        ("input", "question") if task == "answer" else (), member=f"data/{name}.jsonl",
    )  # fmt: skip


SAMPLES_SEED = 40_001
"""Seed for drawing documents or generating rows, the same for every run and seed."""
HALLUCINATION_SETS = {
    "xsum": HallucinationSet(
        "XSum", "summary", "MIT (repository); articles (c) BBC", "EdinburghNLP/xsum",
        # The hub's own conversion, a reference that moves: no commit of it was at hand to pin.
        "refs/convert/parquet", ("document",), ("summary",),
    ),
    "cnn_dailymail": HallucinationSet(
        "CNN/DM", "summary", "Apache-2.0 (data set); articles (c) their publishers",
        "abisee/cnn_dailymail", "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
        ("article",), ("highlights",), config="3.0.0",
    ),
    "multi_news": _longbench(
        "MultiNews", "summary", "multi_news", "not verified; articles (c) their publishers"
    ),
    "qasper": _longbench("Qasper", "answer", "qasper", "CC-BY-4.0 (not verified)"),
    "hotpotqa": _longbench("HotpotQA", "answer", "hotpotqa", "CC-BY-SA-4.0", "paragraphs"),
    "2wikimqa": _longbench(
        "2WikiMQA", "answer", "2wikimqa", "Apache-2.0 (not verified)", "paragraphs"
    ),
}  # fmt: skip
"""In the order of table 4. The paper names the sets and, for questions, LongBench; which items it
drew is not stated. Nothing of the hub could be loaded where this was written: revisions are those
that others have pinned, and fields those of the data sets' cards."""


def fact_set(task: Task, needles: int) -> str:
    """Name of a set of our own: facts in the words of the recall corpus, `needles` in a row."""
    return f"{task}_n{needles}"


def set_label(name: str) -> str:
    """Head of a set's column."""
    if name in HALLUCINATION_SETS:
        return HALLUCINATION_SETS[name].label
    task, _, number = name.partition("_n")
    return f"{task.capitalize()}, N = {number}"


def set_metric(kind: str, name: str) -> str:
    """Metric of a set, of the answers or of what a judge finds."""
    return f"{kind}_{name}"


def average_metric(task: Task) -> str:
    """Metric of a judge's mean over the sets of a task."""
    return f"average_{task}"


class Suite(PromptSuite):
    """Summaries and answers from a given document, generated greedily and kept for the judges.

    Nothing is judged here: `judge_answers` reads what this suite leaves, so that another judge
    needs no new generation.
    """

    judged: ClassVar[bool] = True

    kind: Literal["hallucination"] = setting(meaning="Which evaluation the suite is.")
    format: Literal["text", "recall"] = setting(
        "recall",
        meaning="text: documents of `sets`, for models of text; recall: rows of the builtin corpus "
        "`recall`, whose facts are its key-value pairs, for models trained on that. There "
        "an answer states the value of a given key, a summary goes on from there with pairs of the "
        "model's own choice, and what is true is known exactly.",
    )
    sets: Annotated[list[str], AfterValidator(known_names(HALLUCINATION_SETS, "set"))] = setting(
        list(HALLUCINATION_SETS),
        meaning="Sets of format text, by name.",
        source="arXiv 2410.05258v2, table 4",
        min_length=1,
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
    needles: Sizes = setting(
        [2, 4, 6],
        meaning="Facts in a row of format recall, a set for each number and task; more than the "
        "dataset's max_needles is out of distribution.",
        unit="pairs",
    )
    haystack_length: int | None = setting(
        None,
        meaning="Tokens of a document of format recall; null: those before the first query of a "
        "training row.",
        unit="tokens",
        gt=0,
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

    @property
    def set_tasks(self) -> dict[str, Task]:
        """Every set with what it asks for, in the order of the table."""
        if self.format == "text":
            return {name: HALLUCINATION_SETS[name].task for name in self.sets}
        return {fact_set(task, number): task for task in TASKS for number in self.needles}

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Rows of the recall corpus come from nowhere else."""
        return entry.get("format") != "recall"

    def files(self) -> dict[str, Path]:
        """Return the file of every set that a folder holds; none for the hub or format recall.

        Of a set that is the test split before validation before the first by name.

        Raises:
            DataError: The folder is missing, or a file is a link out of it.
        """
        if self.format == "recall" or self.data in (HUB, BUILTIN):
            return {}
        root = items_folder(self.data, "<set>/<split>.jsonl, or 'hub'")
        ranks = {"test": 0, "validation": 1}
        files = {
            name: min(paths, key=lambda path: ranks.get(path.name.partition(".")[0], 2))
            for name in self.sets
            if (paths := sorted(p for p in (root / name).glob("[!.]*") if p.name.endswith(ENDINGS)))
        }
        for path in files.values():
            require_inside(path, root)
        return files

    def incompatibility(self, max_positions: int, rows: GeneratedRows | None) -> str | None:
        """Rows and documents must leave room for what is written about them."""
        recall = rows if isinstance(rows, RecallConfig) else None
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
        length = self.haystack_length or recall.haystack_length
        most = recall.most_needles(length)
        if max(self.needles) > most:
            return f"needles: {max(self.needles)} do not fit {length} tokens, at most {most}"
        if length + 2 * self.statements > max_positions:
            return (
                f"haystack_length, statements: {length} tokens and {self.statements} pairs do not "
                f"fit its max_positions {max_positions}"
            )
        return None
