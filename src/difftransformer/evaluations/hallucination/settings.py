"""Settings of the contextual hallucination evaluation, and the document sets of table 4."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator

from difftransformer.config.base import Sizes, setting
from difftransformer.config.evaluation import PromptSuite
from difftransformer.config.folders import require_inside
from difftransformer.config.generated_rows import GeneratedRows, RecallConfig
from difftransformer.config.validation import names_from
from difftransformer.evaluation.item_files import BUILTIN, ENDINGS, HUB, items_folder

Task = Literal["summary", "answer"]
"""Task of an item: summarize a document, or answer a question about it."""

TASKS: dict[Task, str] = {"summary": "Summary", "answer": "Answer"}
"""Labels of the tasks, in the order of the tables."""


class HallucinationSet(NamedTuple):
    """A set of documents: its location on the Hugging Face hub, and the fields of its items.

    Attributes:
        label: Header of the set's column.
        task: Whether its documents are summarized, or questions about them answered.
        license: License of the data according to its hub page; the texts may have other owners.
        hub_path: Dataset on the hub.
        revision: Commit of that dataset.
        document: Names of the fields that may have the document; a list of passages is joined.
        reference: Names of the fields that may have the reference; of a list the first element.
        question: Names of the fields that may have the question; empty for summaries.
        hub_config: Configuration of the dataset; None: the default, or `archive_member` is set.
        archive_member: File inside the dataset's data.zip; None: `datasets` loads the dataset.
    """

    label: str
    task: Task
    license: str
    hub_path: str
    revision: str
    document: tuple[str, ...]
    reference: tuple[str, ...]
    question: tuple[str, ...] = ()
    hub_config: str | None = None
    archive_member: str | None = None


def _longbench(label: str, task: Task, name: str, license: str, *extra: str) -> HallucinationSet:
    return HallucinationSet(
        label, task, license, "zai-org/LongBench", "5e628be450b7e67fb7ae6e201bd6d8f7056f7672",
        ("context", *extra), ("answers", "answer", "summary"),
        ("input", "question") if task == "answer" else (), archive_member=f"data/{name}.jsonl",
    )  # fmt: skip


SAMPLES_SEED = 40_001
"""Seed for sampling documents or generating rows, the same for every run and seed."""
HALLUCINATION_SETS = {
    "xsum": HallucinationSet(
        "XSum", "summary", "MIT (repository); articles (c) BBC", "EdinburghNLP/xsum",
        # The hub's own conversion, a reference that moves: no commit of it was at hand to pin.
        "refs/convert/parquet", ("document",), ("summary",),
    ),
    "cnn_dailymail": HallucinationSet(
        "CNN/DM", "summary", "Apache-2.0 (data set); articles (c) their publishers",
        "abisee/cnn_dailymail", "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
        ("article",), ("highlights",), hub_config="3.0.0",
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
"""Document sets of table 4, in its order.

The paper names the sets and, for questions, LongBench, but not the items that it sampled. Loading
from the hub is untested: revisions are those that other projects pin, and fields those of the
dataset pages."""


def fact_set(task: Task, needles: int) -> str:
    """Return the name of a generated set: rows of the recall corpus with ``needles`` facts each."""
    return f"{task}_n{needles}"


def set_label(name: str) -> str:
    """Return the column header of a set."""
    if name in HALLUCINATION_SETS:
        return HALLUCINATION_SETS[name].label
    task, _, number = name.partition("_n")
    return f"{task.capitalize()}, N = {number}"


def set_metric(kind: str, name: str) -> str:
    """Return the name of a metric for one set."""
    return f"{kind}_{name}"


def average_metric(task: Task) -> str:
    """Return the name of the metric that averages over a task's sets."""
    return f"average_{task}"


class Suite(PromptSuite):
    """Suite of generated summaries and answers about documents, which judges read later.

    Decoding is greedy. The rule `judge_answers` judges the stored outputs, so another judge needs
    no new generation.
    """

    judged: ClassVar[bool] = True

    kind: Literal["hallucination"] = setting(meaning="Which evaluation the suite is.")
    format: Literal["text", "recall"] = setting(
        "recall",
        meaning="text: documents of `sets`, for models of text; recall: rows of the builtin corpus "
        "`recall`, whose facts are its key-value pairs, for models trained on it. In format recall "
        "an answer is the value of the key in the prompt, a summary continues with pairs that the "
        "model chooses, and the judge knows the truth exactly.",
    )
    sets: Annotated[list[str], AfterValidator(names_from(HALLUCINATION_SETS, "set"))] = setting(
        list(HALLUCINATION_SETS),
        meaning="Sets of format text, by name.",
        source="arXiv 2410.05258v2, table 4",
        min_length=1,
    )
    data: str = setting(
        "hub",
        meaning="Documents of format text: 'hub': pinned revisions from the Hugging Face hub; else "
        "a folder with <set>/<split>.jsonl or .jsonl.gz. `benchmarks` of config.yaml overrides it.",
    )
    samples: int = setting(
        100,
        meaning="Documents per set.",
        unit="documents",
        source="arXiv 2410.05258v2, section 3.6 (figures of table 4 are hundredths)",
        gt=0,
    )
    needles: Sizes = setting(
        [2, 4, 6],
        meaning="Facts per row in format recall, one set per number and task; more than the "
        "dataset's max_needles is out of distribution.",
        unit="pairs",
    )
    haystack_length: int | None = setting(
        None,
        meaning="Length of a document in format recall; null: the tokens before the first query of "
        "a training row.",
        unit="tokens",
        gt=0,
    )
    summary_pairs: int = setting(
        4,
        meaning="Key-value pairs per summary in format recall; the prompt has the first key.",
        unit="pairs",
        gt=0,
    )
    summary_tokens: int = setting(
        256,
        meaning="Longest summary in format text.",
        unit="tokens",
        source="ours; the paper states no length",
        gt=0,
    )
    answer_tokens: int = setting(64, meaning="Longest answer in format text.", unit="tokens", gt=0)

    @property
    def set_tasks(self) -> dict[str, Task]:
        """Task of every set by the set's name, in the order of the table."""
        if self.format == "text":
            return {name: HALLUCINATION_SETS[name].task for name in self.sets}
        return {fact_set(task, number): task for task in TASKS for number in self.needles}

    @classmethod
    def takes_benchmarks(cls, entry: Mapping[str, Any], benchmarks: str) -> bool:
        """Return whether `benchmarks` of config.yaml sets the items' source: in format text."""
        return entry.get("format") != "recall"

    def files(self) -> dict[str, Path]:
        """Return the item file of each set in a local folder; empty for the hub or format recall.

        The test split is preferred, then validation, then the first file by name.

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
        """Return why a model's context or the dataset does not fit the suite, or None."""
        recall = rows if isinstance(rows, RecallConfig) else None
        if (self.format == "recall") != (recall is not None):
            available = "text" if recall is None else "recall rows"
            return f"format: {self.format} needs another dataset; this one has {available}"
        if recall is None:
            longest = max(self.summary_tokens, self.answer_tokens)
            if 2 * longest > max_positions:
                return (
                    f"summary_tokens, answer_tokens: {longest} tokens leave less than half of "
                    f"max_positions {max_positions} to the document"
                )
            return None
        length = self.haystack_length or recall.haystack_length
        most_needles = recall.most_needles(length)
        if max(self.needles) > most_needles:
            return (
                f"needles: {max(self.needles)} do not fit {length} tokens, "
                f"which hold at most {most_needles}"
            )
        if length + 2 * self.summary_pairs > max_positions:
            return (
                f"haystack_length, summary_pairs: {length} tokens and {self.summary_pairs} pairs "
                f"do not fit max_positions {max_positions}"
            )
        return None
