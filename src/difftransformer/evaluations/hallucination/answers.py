"""Generated answers and judgments: their records, and the files in an evaluation's details."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import split_lines
from difftransformer.evaluations.hallucination.settings import Task
from difftransformer.provenance.atomic import write_text

ANSWERS = "answers.jsonl"
"""File in the details of a generation's result, with one answer per line."""
JUDGMENTS = "judgments.jsonl"
"""File in the details of a judge's result: one judgment per line, in the order of the answers."""
Cause = Literal["", "contradicted", "unsupported", "malformed", "empty"]
_Record = TypeVar("_Record", bound=Settings)


class Answer(Settings):
    """One generated output of a model, with its document, question, reference and prompt."""

    set: str = Field(description="Set of the document")
    index: int = Field(description="Index of the document in its set, from 0")
    id: str = Field(description="Id of the source item")
    task: Task = Field(description="Summarize the document, or answer a question about it")
    format: Literal["text", "recall"] = Field(description="Format of the suite")
    document: str = Field(description="The document in the prompt")
    truncated: bool = Field(description="Whether the document lost its end to fit the context")
    question: str | None = Field(
        description="The question; None for a summary of text; in format recall a key"
    )
    reference: str = Field(description="A correct answer, or a summary written by people")
    prompt: str = Field(description="The full prompt")
    output: str = Field(description="The generated text; in format recall it begins with a value")

    @property
    def judged_text(self) -> str:
        """The text that a judge reads: the output; in format recall with the key before it."""
        key = self.question if self.format == "recall" and self.question else ""
        return f"{key} {self.output}".strip()


class Judgment(Settings):
    """One judge's verdict on one answer."""

    set: str = Field(description="Set of the answer")
    index: int = Field(description="Index of the answer in its set")
    faithful: bool | None = Field(description="Free of hallucination; None: not judged")
    cause: Cause = Field(
        "",
        description="Why the answer is not faithful, where the judge can tell: it contradicts the "
        "document, or has no support in it. Why it is unjudged: every reply of the judge was "
        "malformed, or the output is empty",
    )
    reason: str = Field("", description="The judge's explanation")
    usage: dict[str, int] = Field({}, description="Prompt and completion tokens of the judge")


def empty_judgment(answer: Answer) -> Judgment:
    """Return the judgment for an answer without any word: unjudged, with the cause "empty"."""
    return Judgment(
        set=answer.set, index=answer.index, faithful=None, cause="empty", reason="states nothing"
    )


def write_lines(path: Path, records: Iterable[Settings]) -> None:
    """Write answers or judgments to a file as JSON lines."""
    write_text(path, "".join(f"{record.model_dump_json()}\n" for record in records))


def read_answers(folder: Path) -> list[Answer]:
    """Return the answers stored in the details folder of a generation's result, in order.

    Raises:
        DataError: The file is missing, empty or damaged; the message names the line.
    """
    return _read(folder / ANSWERS, Answer, "run the suite again")


def read_judgments(path: Path) -> list[Judgment]:
    """Return the judgments stored in a file, in order.

    Raises:
        DataError: The file is missing, empty or damaged; the message names the line.
    """
    return _read(path, Judgment, "judge again")


def _read(path: Path, kind: type[_Record], cure: str) -> list[_Record]:
    records, name = list[_Record](), kind.__name__.lower()
    try:
        for line in split_lines(path.read_text(encoding="utf-8")):
            records.append(kind.model_validate_json(line))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {cure}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        field = ".".join(map(str, fault["loc"])) or "line"
        location = f"{path}: line {len(records) + 1}"
        raise DataError(
            f"{location}: not a valid {name} ({field}: {fault['msg']}); {cure}"
        ) from None
    if not records:
        raise DataError(f"{path}: contains no {name}s; {cure}")
    return records
