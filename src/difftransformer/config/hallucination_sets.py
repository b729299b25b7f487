"""The six sets of contextual hallucination: columns, pinned data, fields of an item."""

from typing import Literal, NamedTuple

Task = Literal["summary", "answer"]
"""What a model is asked for: the summary of a document, or the answer to a question about it."""

TASKS: dict[Task, str] = {"summary": "Summary", "answer": "Answer"}
"""Tasks in the order of the tables, with their names."""


class HallucinationSet(NamedTuple):
    """One set.

    Attributes:
        label: Head of its column.
        task: What is asked for.
        dataset: Where it lies on the Hugging Face hub.
        revision: Commit of that data set.
        config: Configuration of the data set; None where `member` is set, or for the default.
        member: File inside the data set's data.zip; None: the data set itself is loaded.
        document: Field with the document; a list of passages is joined.
        question: Field with the question; None for summaries.
        reference: Field with the reference; of a list the first.
        licence: Licence of the data, as its card states it; texts may have holders of their own.
    """

    label: str
    task: Task
    dataset: str
    revision: str
    config: str | None
    member: str | None
    document: tuple[str, ...]
    question: tuple[str, ...]
    reference: tuple[str, ...]
    licence: str


_LONGBENCH = "zai-org/LongBench"
_LONGBENCH_COMMIT = "5e628be450b7e67fb7ae6e201bd6d8f7056f7672"


def _longbench(
    label: str, task: Task, member: str, licence: str, extra: str = "context"
) -> HallucinationSet:
    return HallucinationSet(
        label,
        task,
        _LONGBENCH,
        _LONGBENCH_COMMIT,
        None,
        f"data/{member}.jsonl",
        ("context", extra),
        ("input", "question") if task == "answer" else (),
        ("answers", "answer", "summary"),
        licence,
    )


HALLUCINATION_SETS = {
    "xsum": HallucinationSet(
        "XSum",
        "summary",
        "EdinburghNLP/xsum",
        # The hub's own conversion, a reference that moves: no commit of it was at hand to pin.
        "refs/convert/parquet",
        None,
        None,
        ("document",),
        (),
        ("summary",),
        "MIT (repository); articles (c) BBC",
    ),
    "cnn_dailymail": HallucinationSet(
        "CNN/DM",
        "summary",
        "abisee/cnn_dailymail",
        "96df5e686bee6baa90b8bee7c28b81fa3fa6223d",
        "3.0.0",
        None,
        ("article",),
        (),
        ("highlights",),
        "Apache-2.0 (data set); articles (c) their publishers",
    ),
    "multi_news": _longbench(
        "MultiNews", "summary", "multi_news", "not verified; articles (c) their publishers"
    ),
    "qasper": _longbench("Qasper", "answer", "qasper", "CC-BY-4.0 (not verified)"),
    "hotpotqa": _longbench("HotpotQA", "answer", "hotpotqa", "CC-BY-SA-4.0", "paragraphs"),
    "2wikimqa": _longbench(
        "2WikiMQA", "answer", "2wikimqa", "Apache-2.0 (not verified)", "paragraphs"
    ),
}
"""In the order of table 4. The paper names the sets and, for questions, LongBench; which items it
drew is not stated. Nothing of the hub could be loaded where this was written: revisions are those
that others have pinned, and fields those of the data sets' cards."""


def fact_set(task: Task, needles: int) -> str:
    """Name of a set of our own: facts in the words of the recall corpus, `needles` in a row."""
    return f"{task}_n{needles}"
