"""lm-eval tasks in the tables: labels, metrics, pinned data, and files of items.

A folder of items holds ``<task>/<split>.jsonl`` or ``.jsonl.gz``, one item per line with the fields
of the dataset on the hub. Our builtin items are in such a folder next to this file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import BUILTIN, HUB, items_folder, jsonl_file
from difftransformer.provenance.checksums import verify_file
from difftransformer.provenance.layout import SUMS


class LanguageTask(NamedTuple):
    """A task of lm-eval, or a group of tasks, as the tables show it.

    Attributes:
        label: Header of the task's column.
        metric: lm-eval's metric in that column.
        folder: Folder of the task in lm-eval's `tasks` folder.
        total_tokens: Approximate tokens of all items, each prompt with each answer, for cost
            estimates: a quarter of their letters.
        hub_path: Dataset on the hub that lm-eval loads, for messages.
        revision: Commit of that dataset on the hub; None: not pinned.
        required_fields: Keys that an item in a file must have; "a.b" is key b in the mapping a.
        allowed_values: Values that lm-eval accepts for some of those fields.
        has_acc_norm: Whether lm-eval scores acc_norm as well as acc.
        filter: Filter of lm-eval that extracts the answer for the metric.
        num_fewshot: Default number of few-shot examples in lm-eval.
        bundled_examples: Whether few-shot examples come with lm-eval and not from a split.
        max_gen_toks: lm-eval's longest generated answer; 0 for multiple choice.
        runs_code: Whether the answers are programs, which are run.
        subjects: Subjects of a group, in the field ``subject`` of its items. Each is a task of
            lm-eval; the group's score is over all items.
        subject_prefix: Prefix of the names of those tasks.
    """

    label: str
    metric: str
    folder: str
    total_tokens: int
    hub_path: str
    revision: str | None
    required_fields: tuple[str, ...]
    allowed_values: Mapping[str, Sequence[Any]] = MappingProxyType({})
    has_acc_norm: bool = False
    filter: str = "none"
    num_fewshot: int = 0
    bundled_examples: bool = False
    max_gen_toks: int = 0
    runs_code: bool = False
    subjects: tuple[str, ...] = ()
    subject_prefix: str = ""

    @property
    def subtasks(self) -> dict[str, str]:
        """Names of lm-eval's tasks in this group by subject; empty for a single task."""
        return {subject: f"{self.subject_prefix}_{subject}" for subject in self.subjects}


_YES_NO = {"label": (0, 1)}
_CHOICES = ("choices.text", "choices.label", "answerKey")
_ARC_COMMIT = "210d026faf9955653af8916fad021475a3f00453"
_ARC = ("allenai/ai2_arc", _ARC_COMMIT, ("question", *_CHOICES))

_MMLU_NAMES = """
    abstract_algebra anatomy astronomy business_ethics clinical_knowledge college_biology
    college_chemistry college_computer_science college_mathematics college_medicine college_physics
    computer_security conceptual_physics econometrics electrical_engineering elementary_mathematics
    formal_logic global_facts high_school_biology high_school_chemistry
    high_school_computer_science high_school_european_history high_school_geography
    high_school_government_and_politics high_school_macroeconomics high_school_mathematics
    high_school_microeconomics high_school_physics high_school_psychology high_school_statistics
    high_school_us_history high_school_world_history human_aging human_sexuality international_law
    jurisprudence logical_fallacies machine_learning management marketing medical_genetics
    miscellaneous moral_disputes moral_scenarios nutrition philosophy prehistory
    professional_accounting professional_law professional_medicine professional_psychology
    public_relations security_studies sociology us_foreign_policy virology
    world_religions
"""
_MMLU = tuple(_MMLU_NAMES.split())
_AGIEVAL_EN = (
    *("aqua_rat", "gaokao_english", "logiqa_en", "lsat_ar", "lsat_lr", "lsat_rc", "math"),
    *("sat_en_without_passage", "sat_en", "sat_math"),
)

_SUPER_GLUE = ("aps/super_glue", "3de24cf8022e94f4ee4b9d55a6f539891524d646")

LANGUAGE_TASKS = {
    "arc_challenge": LanguageTask("ARC-C", "acc", "arc", 212_000, *_ARC, has_acc_norm=True),
    "arc_easy": LanguageTask("ARC-E", "acc", "arc", 371_000, *_ARC, has_acc_norm=True),
    "boolq": LanguageTask(
        "BoolQ", "acc", "super_glue/boolq", 1_065_000, *_SUPER_GLUE,
        ("question", "passage", "label"), _YES_NO,
    ),
    "hellaswag": LanguageTask(
        "HellaSwag", "acc_norm", "hellaswag", 3_606_000,
        "Rowan/hellaswag", "218ec52e09a7e7462a5400043bb9a69a41d06b76",
        ("activity_label", "ctx_a", "ctx_b", "endings", "label"), has_acc_norm=True,
    ),
    "openbookqa": LanguageTask(
        "OBQA", "acc", "openbookqa", 46_000,
        "allenai/openbookqa", "388097ea7776314e93a529163e0fea805b8a6454",
        ("question_stem", *_CHOICES), has_acc_norm=True,
    ),
    "piqa": LanguageTask(
        "PIQA", "acc", "piqa", 142_000,
        "baber/piqa", "142f6d7367fd9877f0fb3b5734ea6a545f54cdd1",
        ("goal", "sol1", "sol2", "label"), _YES_NO, has_acc_norm=True,
    ),
    "winogrande": LanguageTask(
        "WinoGrande", "acc", "winogrande", 68_000,
        "allenai/winogrande", "01e74176c63542e6b0bcb004dcdea22d94fb67b5",
        ("sentence", "option1", "option2", "answer"), {"answer": ("1", "2")},
    ),
    "copa": LanguageTask(
        "COPA", "acc", "super_glue/copa", 4_000, *_SUPER_GLUE,
        ("premise", "choice1", "choice2", "question", "label"),
        {"question": ("cause", "effect"), **_YES_NO},
    ),
    "mnli": LanguageTask(
        "MNLI", "acc", "glue/mnli", 1_472_000,
        "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
        ("premise", "hypothesis", "label"), {"label": (0, 1, 2)},
    ),
    "wic": LanguageTask(
        "WiC", "acc", "super_glue/wic", 59_000, *_SUPER_GLUE,
        ("sentence1", "sentence2", "start1", "end1", "label"), _YES_NO,
    ),
    "wsc": LanguageTask(
        "WSC", "acc", "super_glue/wsc", 15_000, *_SUPER_GLUE,
        ("text", "span1_text", "span2_text", "span2_index", "label"), _YES_NO,
    ),
    "mmlu": LanguageTask(
        "MMLU", "acc", "mmlu/default", 1_743_000,
        "cais/mmlu", "c30699e8356da336a370243923dbaf21066bb9fe",
        ("subject", "question", "choices", "answer"), {"answer": (0, 1, 2, 3)},
        subjects=_MMLU, subject_prefix="mmlu",
    ),
    "ifeval": LanguageTask(
        "IFEval", "prompt_level_strict_acc", "ifeval", 720_000,
        "google/IFEval", "966cd89545d6b6acfd7638bc708b98261ca58e84",
        ("key", "prompt", "instruction_id_list", "kwargs"), max_gen_toks=1280,
    ),
    "mbpp_plus": LanguageTask(
        "MBPP+", "pass_at_1", "mbpp", 150_000,
        "evalplus/mbppplus", None,
        ("task_id", "prompt", "code", "test_list"),
        num_fewshot=3, bundled_examples=True, max_gen_toks=256, runs_code=True,
    ),
    "gsm8k": LanguageTask(
        "GSM8K", "exact_match", "gsm8k", 417_000,
        "openai/gsm8k", "e53f048856ff4f594e959d75785d2c2d37b678ee",
        ("question", "answer"), filter="flexible-extract", num_fewshot=5, max_gen_toks=256,
    ),
    "agieval_en": LanguageTask(
        "AGIEval", "acc", "agieval", 4_800_000,
        "hails/agieval-*", None,
        ("subject", "query"), max_gen_toks=32, subjects=_AGIEVAL_EN, subject_prefix="agieval",
    ),
}  # fmt: skip
"""Tasks by lm-eval's name: the seven of Differential Transformer in the order of its tables, four
more of Dex, and five more of Dex's table of tuned models. Neither paper names its metrics. `acc`
for all but HellaSwag is inferred from the OpenLLaMA row of Differential Transformer, whose numbers
appear with their metric in the README of openlm-research/open_llama; a suite can set others. For
generated answers it is lm-eval's first metric; for GSM8K the last number in the answer counts."""
DIFF_TASKS = tuple(LANGUAGE_TASKS)[:7]
"""Tasks of tables 1 and 8 of Differential Transformer."""

SPLITS = ("dev", "train", "validation", "test")
_BUILTIN = Path(__file__).with_name("items")
"""Folder of our own items; their digests are in items.sha256.json."""


def task_files(task: str, data: str) -> dict[str, Path]:
    """Return the item file of each split of a task; empty if items come from the hub.

    Raises:
        DataError: The folder is missing, has no validation or test items, or our own items were
            changed.
    """
    if data == HUB:
        return {}
    root = _BUILTIN if data == BUILTIN else items_folder(data)
    bundled = data == BUILTIN
    paths = {split: jsonl_file(root, task, split, bundled=bundled) for split in SPLITS}
    files = {split: path for split, path in paths.items() if path is not None}
    if bundled:
        for path in files.values():
            verify_file(path, _BUILTIN / f"items{SUMS}", "install the package again")
    if not set(files) & {"validation", "test"}:
        raise DataError(
            f"benchmarks: {root / task}: contains neither validation.jsonl nor test.jsonl (or "
            f".jsonl.gz); put {task} there, or remove it from the suite's tasks"
        )
    return files
