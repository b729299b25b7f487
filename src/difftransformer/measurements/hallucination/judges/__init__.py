"""What a judge is: something that says of each answer whether it is free of hallucination."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import written_lines
from difftransformer.measurements.hallucination.answers import Answer
from difftransformer.provenance.atomic import write_text

JUDGEMENTS = "judgements.jsonl"
"""File of single judgements, one a line, in the order of the answers."""
Cause = Literal["", "contradicted", "invented", "malformed", "empty"]


class Judgement(Settings):
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


class Judge(Protocol):
    """One judge."""

    def judge(self, answers: Sequence[Answer]) -> list[Judgement]:
        """Judge answers, in their order; an empty one is unjudged, since it states nothing.

        Raises:
            UserError: The judge cannot be reached; what it has judged is kept for the next time.
        """
        ...


OpenJudge = Callable[[Any, Path], Judge]
"""What ``open_judge`` of a judge's module is: from the judge's settings and the folder of
judgements that cost something, shared by all jobs, it opens the judge."""


def write_judgements(folder: Path, judgements: Sequence[Judgement]) -> None:
    """Write the judgements, one a line."""
    write_text(folder / JUDGEMENTS, "".join(f"{one.model_dump_json()}\n" for one in judgements))


def read_judgements(path: Path) -> list[Judgement]:
    """Read a file of judgements.

    Raises:
        DataError: It is missing or damaged.
    """
    try:
        lines = written_lines(path.read_text(encoding="utf-8"))
        return [Judgement.model_validate_json(line) for line in lines]
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path}: not a whole file of judgements ({type(error).__name__}); judge again"
        ) from None


def unjudged(answer: Answer, cause: Cause, reason: str) -> Judgement:
    """Say that an answer is not judged, and why."""
    return Judgement(set=answer.set, index=answer.index, free=None, cause=cause, reason=reason)
