"""What a model wrote about a given document, as the suite leaves it, and what judges say of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import written_lines
from difftransformer.evaluations.hallucination.settings import Task
from difftransformer.provenance.atomic import write_text

ANSWERS = "answers.jsonl"
"""File in the details of the suite, one answer a line."""
JUDGMENTS = "judgments.jsonl"
"""File of single judgments, one a line, in the order of the answers."""
Cause = Literal["", "contradicted", "invented", "malformed", "empty"]
_Record = TypeVar("_Record", bound=Settings)


class Answer(Settings):
    """One output of a model, with everything that it was made from."""

    set: str = Field(description="Set of the document")
    index: int = Field(description="Place among the documents of the set, from 0")
    id: str = Field(description="Id of the item where it comes from")
    task: Task = Field(description="What was asked for")
    format: Literal["text", "recall"] = Field(description="Format of the suite")
    document: str = Field(description="The document as the model was given it")
    cut: bool = Field(description="Whether the model's context held the document's start alone")
    question: str | None = Field(
        description="The question; None for a summary of text; in format recall a key"
    )
    reference: str = Field(description="A right answer, or a summary by people")
    prompt: str = Field(description="All that the model was given")
    output: str = Field(description="What it wrote; in format recall a value goes before all else")

    @property
    def stated(self) -> str:
        """The output as it is judged: in format recall with the key that stands before it."""
        key = self.question if self.format == "recall" and self.question else ""
        return f"{key} {self.output}".strip()


class Judgment(Settings):
    """What a judge says about one answer."""

    set: str = Field(description="Set of the answer")
    index: int = Field(description="Place of the answer in its set")
    free: bool | None = Field(description="Free of hallucination; None: not judged")
    cause: Cause = Field(
        "",
        description="Why it is not free, where the judge can tell: it contradicts the document, or "
        "has invented something; or why it is unjudged: no reply was clear, or nothing is stated",
    )
    reason: str = Field("", description="What the judge goes by, in words")
    usage: dict[str, int] = Field({}, description="Tokens that the judge was sent and sent back")


def states_nothing(answer: Answer) -> Judgment:
    """Return the judgment of an empty answer, which no judge judges."""
    return Judgment(
        set=answer.set, index=answer.index, free=None, cause="empty", reason="states nothing"
    )


def write_lines(path: Path, records: Iterable[Settings]) -> None:
    """Write answers or judgments, one a line."""
    write_text(path, "".join(f"{one.model_dump_json()}\n" for one in records))


def read_answers(folder: Path) -> list[Answer]:
    """Read the answers in their order.

    Raises:
        DataError: The file is missing, empty or damaged; names the line.
    """
    return _read(folder / ANSWERS, Answer, "run the suite again")


def read_judgments(path: Path) -> list[Judgment]:
    """Read a file of judgments.

    Raises:
        DataError: It is missing, empty or damaged; names the line.
    """
    return _read(path, Judgment, "judge again")


def _read(path: Path, kind: type[_Record], cure: str) -> list[_Record]:
    found, name = list[_Record](), kind.__name__.lower()
    try:
        for line in written_lines(path.read_text(encoding="utf-8")):
            found.append(kind.model_validate_json(line))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {cure}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "line"
        said = f"{path}: line {len(found) + 1}: no {name} ({where}: {fault['msg']})"
        raise DataError(f"{said}; {cure}") from None
    if not found:
        raise DataError(f"{path}: holds no {name}s; {cure}")
    return found
