"""The seven tasks of language understanding: columns, metrics, pinned data, fields of an item."""

from typing import NamedTuple


class LanguageTask(NamedTuple):
    """One task of lm-eval, as the tables use it.

    Attributes:
        label: Head of its column.
        metric: Metric of lm-eval that the column shows.
        folder: Folder of the task below those bundled with lm-eval.
        dataset: Where lm-eval loads it from, for messages.
        revision: Commit of that data set on the hub.
        fields: Keys that an item in a file must have; a dot leads into a mapping.
    """

    label: str
    metric: str
    folder: str
    dataset: str
    revision: str
    fields: tuple[str, ...]


_ARC = "210d026faf9955653af8916fad021475a3f00453"
_CHOICES = ("choices.text", "choices.label", "answerKey")

LANGUAGE_TASKS = {
    "arc_challenge": LanguageTask(
        "ARC-C", "acc", "arc", "allenai/ai2_arc", _ARC, ("question", *_CHOICES)
    ),
    "arc_easy": LanguageTask(
        "ARC-E", "acc", "arc", "allenai/ai2_arc", _ARC, ("question", *_CHOICES)
    ),
    "boolq": LanguageTask(
        "BoolQ",
        "acc",
        "super_glue/boolq",
        "aps/super_glue",
        "3de24cf8022e94f4ee4b9d55a6f539891524d646",
        ("question", "passage", "label"),
    ),
    "hellaswag": LanguageTask(
        "HellaSwag",
        "acc_norm",
        "hellaswag",
        "Rowan/hellaswag",
        "218ec52e09a7e7462a5400043bb9a69a41d06b76",
        ("activity_label", "ctx_a", "ctx_b", "endings", "label"),
    ),
    "openbookqa": LanguageTask(
        "OBQA",
        "acc",
        "openbookqa",
        "allenai/openbookqa",
        "388097ea7776314e93a529163e0fea805b8a6454",
        ("question_stem", *_CHOICES),
    ),
    "piqa": LanguageTask(
        "PIQA",
        "acc",
        "piqa",
        "baber/piqa",
        "142f6d7367fd9877f0fb3b5734ea6a545f54cdd1",
        ("goal", "sol1", "sol2", "label"),
    ),
    "winogrande": LanguageTask(
        "WinoGrande",
        "acc",
        "winogrande",
        "allenai/winogrande",
        "01e74176c63542e6b0bcb004dcdea22d94fb67b5",
        ("sentence", "option1", "option2", "answer"),
    ),
}
"""By lm-eval's name, in the order of the paper's tables. The paper does not say which metric it
prints: `acc` everywhere but for HellaSwag is inferred from its OpenLLaMA row, whose numbers stand
with their metric in the README of openlm-research/open_llama."""
