"""Our example sentences, each with a relevant word and a distractor.

Indirect objects: of two people one is named twice (the distractor), and the other one (the relevant
word) receives something. Sarcasm: the distractor is a word of insincere praise, and the relevant
word reveals the sarcasm.
"""

from typing import NamedTuple


class Sentence(NamedTuple):
    """An example sentence with two of its words, the relevant word and the distractor.

    Every occurrence of a word counts.
    """

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
"""Example sentences by name."""
