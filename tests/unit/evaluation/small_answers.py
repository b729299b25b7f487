"""Answers about generated facts, and about a line of English."""

from typing import Any

from difftransformer.evaluations.hallucination.answers import Answer

FACTS = "f12 k07 v31 f60 k02 v05 f11"


def of_facts(output: str, question: str = "k07", index: int = 0) -> Answer:
    """An answer is one word, a summary is longer."""
    task = "summary" if len(output.split()) > 1 else "answer"
    return Answer(
        set=f"{task}_n2",
        index=index,
        id=str(index),
        task=task,
        format="recall",
        document=FACTS,
        truncated=False,
        question=question,
        reference="k07 v31 k02 v05",
        prompt=f"{FACTS} {question}",
        output=output,
    )


def of_text(output: str, **changes: Any) -> Answer:
    values: dict[str, Any] = {
        "set": "xsum",
        "index": 0,
        "id": "a",
        "task": "summary",
        "format": "text",
        "document": "The mill at Aldbury closed in 1931. Its wheel still turns, said Ann Reed.",
        "truncated": False,
        "question": None,
        "reference": "A mill that closed in 1931 still turns.",
        "prompt": "...",
        "output": output,
    }
    return Answer(**(values | changes))
