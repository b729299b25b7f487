"""What a model wrote about a given document, as the suite leaves it and the judges read it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import written_lines
from difftransformer.measurements.hallucination.settings import Task
from difftransformer.provenance.atomic import write_text

ANSWERS = "answers.jsonl"
"""File in the details of the suite, one answer a line."""


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


def write_answers(folder: Path, answers: Iterable[Answer]) -> None:
    """Write the answers, one a line."""
    lines = [json.dumps(one.model_dump(mode="json"), ensure_ascii=False) + "\n" for one in answers]
    write_text(folder / ANSWERS, "".join(lines))


def read_answers(folder: Path) -> list[Answer]:
    """Read the answers in their order.

    Raises:
        DataError: The file is missing, empty or damaged; names the line.
    """
    path = folder / ANSWERS
    try:
        lines = written_lines(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); run the suite again") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Answer.model_validate_json(line))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"])) or "line"
            said = f"{path}: line {number}: not an answer ({where}: {fault['msg']})"
            raise DataError(f"{said}; run the suite again") from None
    if not found:
        raise DataError(f"{path}: holds no answers; run the suite again")
    return found
