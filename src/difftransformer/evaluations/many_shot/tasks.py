"""Tasks of many-shot in-context learning: classes, template and pinned data of each."""

from typing import NamedTuple


class ClassificationTask(NamedTuple):
    """A labeled set of the paper's figures: its classes, template and location on the hub.

    Attributes:
        title: Name of the set in the paper.
        folder: Name of the folder with the set's items, in the folder of benchmarks.
        field: Field of an item that has its label, as text or as an index into `labels`.
        classes: Number of classes.
        prefixes: Text before an item and before its label.
        dataset: Name of the dataset on the hub.
        revision: Commit of that dataset.
        labels: Texts of the labels by index; empty if the field holds the text.
        config: Configuration of the hub's dataset.
        outside: Label of out-of-scope items, which are skipped.
    """

    title: str
    folder: str
    field: str
    classes: int
    prefixes: tuple[str, str]
    dataset: str
    revision: str
    labels: tuple[str, ...] = ()
    config: str | None = None
    outside: str | None = None


SEPARATOR = "\n==\n"
"""Text between demonstrations. The separator, the prefixes and the labels of TREC are from GitHub's
abertsch72/long-context-icl, datasets_loader.py."""

_TREC = ("abbreviation", "entity", "description", "human", "location", "numeric")
# The names in the data are short forms such as ENTY:cremat; these wordings are ours.
_TREC_FINE = {
    "abbreviation": "abbreviation, expansion",
    "entity": "animal, body, color, creative work, currency, disease or medicine, event, food, "
    "instrument, language, letter, other, plant, product, religion, sport, substance, symbol, "
    "technique or method, equivalent term, vehicle, word",
    "description": "definition, description, manner, reason",
    "human": "group, individual, title, description",
    "location": "city, country, mountain, other, state",
    "numeric": "code, count, date, distance, money, order, other, period, percent, speed, "
    "temperature, volume or size, weight",
}
_FINE = tuple(f"{kind} {name}" for kind in _TREC for name in _TREC_FINE[kind].split(", "))
_QUESTIONS = ("Question: ", "Type: ")
_TREC_HUB = ("CogComp/trec", "65752bf53af25bc935a0dce92fb5b6c930728450")

CLASSIFICATION_TASKS = {
    "trec": ClassificationTask("TREC", "trec", "coarse_label", 6, _QUESTIONS, *_TREC_HUB, _TREC),
    "trec_fine": ClassificationTask(
        "TREC-fine", "trec", "fine_label", 50, _QUESTIONS, *_TREC_HUB, _FINE
    ),
    "banking77": ClassificationTask(
        "Banking-77", "banking77", "label_text", 77, ("query: ", "intent: "),
        "mteb/banking77", "0fd18e25b25c072e09e0d92ab615fda904d66300",
    ),
    "clinic150": ClassificationTask(
        "Clinic-150", "clinc150", "intent", 150, ("utterance: ", "intent: "),
        "clinc/clinc_oos", "155b9c710419136e17307b80d0a13e68cd46b4ec", config="plus", outside="oos",
    ),
}  # fmt: skip
"""Labeled sets by the name of a suite's `task`. TREC on the hub is the parquet conversion of the
loading script's data; Banking-77 there has fewer rows than the original, without its repeats."""
