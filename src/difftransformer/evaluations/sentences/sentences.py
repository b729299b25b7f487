"""Sentences with words that a reader should look at, and words that mislead; all are ours.

Indirect objects: of two people one is named twice, and the other one is who gets something.
Sarcasm: a word of praise that is not meant, and what tells so.
"""

from typing import NamedTuple


class Sentence(NamedTuple):
    """A text; ``helps`` and ``misleads`` are words of it, every place of them."""

    text: str
    helps: str
    misleads: str


SENTENCES = {
    "object_1": Sentence(
        "After Nora and Paul came back from the lake, Paul handed the rope to", "Nora", "Paul"
    ),
    "object_2": Sentence(
        "When Emma and Karl met at the station, Karl gave a ticket to", "Emma", "Karl"
    ),
    "sarcasm_1": Sentence(
        "What a lovely evening, she said, while the rain came through the roof. She was",
        "rain", "lovely",
    ),
    "sarcasm_2": Sentence(
        "Brilliant work, he said, as the engine burned out. He was",
        "burned", "Brilliant",
    ),
}  # fmt: skip
"""By name."""
