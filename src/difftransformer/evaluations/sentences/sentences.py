"""Our example sentences, each with a relevant word and a distractor.

Indirect objects: of two people one is named twice, and the other one receives something. Sarcasm:
the distractor is a word of praise that is not meant, the relevant word reveals it.
"""

from typing import NamedTuple


class Sentence(NamedTuple):
    """A text, and two of its words; every occurrence of a word counts."""

    text: str
    relevant: str
    distractor: str


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
"""Sentences by name."""
