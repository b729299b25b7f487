"""Settings of evaluation suites: what is measured on a trained model, and on how much."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from difftransformer.config.base import Settings, setting
from difftransformer.config.language_tasks import LANGUAGE_TASKS
from difftransformer.config.pretrained import PretrainedModel
from difftransformer.config.validation import nearest


def _distinct(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError(f"must be distinct, got {values}")
    return values


def _known_tasks(tasks: list[str]) -> list[str]:
    for task in tasks:
        if task not in LANGUAGE_TASKS:
            raise ValueError(f"unknown task '{task}'{nearest(task, LANGUAGE_TASKS)}")
    if len(set(tasks)) < len(tasks):
        raise ValueError(f"must be distinct, got {tasks}")
    return tasks


class SuiteSettings(Settings):
    """What every suite has: how the model is run, none of which changes what is measured."""

    batch_size: int = setting(32, meaning="Sequences held in memory.", unit="sequences", gt=0)
    device: Literal["auto", "cpu", "cuda"] = setting(
        "auto",
        meaning="Where to evaluate; auto picks CUDA where there is one, logs and records it.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "auto", meaning="Attention implementation; auto picks, logs and records its choice."
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", meaning="bf16: autocast with fp32 weights; sums are float64 under both."
    )


class ValidationSlices(SuiteSettings):
    """Validation loss, overall and in the slices AR-Hit and Others.

    AR-Hit: the predicted token is the last one of an n-gram that already occurred earlier in the
    same window and is not frequent in training. Others: every other token.
    """

    kind: Literal["validation_slices"] = setting(meaning="Which measurement the suite is.")
    seq_len: int = setting(
        meaning="Positions of a window of the validation split; windows do not overlap, and in "
        "running text they cross document boundaries as in training.",
        unit="tokens",
        gt=0,
    )
    max_tokens: int | None = setting(
        None,
        meaning="Predicted tokens, rounded down to whole windows; null: the whole split.",
        unit="tokens",
        gt=0,
    )
    n: int = setting(
        2,
        meaning="Length of the n-grams.",
        unit="tokens",
        source="not stated by arXiv 2410.05258; bigrams after Zoology (Arora et al. 2023), "
        "unverified",
        ge=2,
    )
    max_count: int = setting(
        1250,
        meaning="An n-gram seen more often than this in the training split is frequent and "
        "counts among Others.",
        unit="occurrences",
        source="not stated by arXiv 2410.05258; Zoology (Arora et al. 2023), unverified, for "
        "corpora of billions of tokens: scale it with the corpus",
        ge=0,
    )
    loss_chunk: int = setting(
        1024, meaning="Positions whose logits exist at one time.", unit="tokens", gt=0
    )


class Recall(SuiteSettings):
    """Accuracy of key-value retrieval by the number of needles N in a row.

    The model answers with its first choice among the whole vocabulary at each answer position,
    teacher-forced: earlier queries of a row are followed by their right answers.
    """

    kind: Literal["recall"] = setting(meaning="Which measurement the suite is.")
    needles: Annotated[list[Annotated[int, Field(gt=0)]], AfterValidator(_distinct)] = setting(
        meaning="Numbers N of key-value pairs in a row, an accuracy each; more than the dataset's "
        "max_needles is out of distribution.",
        unit="pairs",
        min_length=1,
    )
    queries: int = setting(2, meaning="Queries R at the end of a row.", unit="queries", gt=0)
    samples: int = setting(256, meaning="Rows for each N.", unit="rows", gt=0)
    haystack_length: int | None = setting(
        None,
        meaning="Tokens before the first query; null: that of the training rows, so that queries "
        "start where they did there.",
        unit="tokens",
        gt=0,
    )
    rows_seed: int = setting(
        20_001,
        meaning="Seed of the rows: the same rows for every run and seed, so that differences are "
        "paired; never those of a training split.",
        ge=0,
    )


class LanguageUnderstanding(SuiteSettings):
    """Multiple-choice tasks of lm-eval, by its own evaluator: one number a task and their mean.

    Measures any causal language model, also one from elsewhere (`pretrained`).
    """

    kind: Literal["language_understanding"] = setting(meaning="Which measurement the suite is.")
    tasks: Annotated[list[str], AfterValidator(_known_tasks)] = setting(
        list(LANGUAGE_TASKS),
        meaning="Tasks by lm-eval's names; the average is over all of them.",
        source="arXiv 2410.05258, tables 1 and 8",
        min_length=1,
    )
    num_fewshot: int = setting(
        0, meaning="Solved examples before each question.", unit="examples", ge=0
    )
    limit: int | None = setting(
        None, meaning="First so many items of each task; null: all.", unit="items", ge=2
    )
    data: str = setting(
        "hub",
        meaning="'hub': pinned revisions from the Hugging Face hub; 'builtin': a few items of our "
        "own; else a folder with <task>/<split>.jsonl or .jsonl.gz. `benchmarks` of config.yaml "
        "wins over it.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "sdpa",
        meaning="Attention of the models trained here; sdpa is what the `lm_eval` command runs on "
        "an exported checkpoint.",
    )


PRETRAINED_KINDS = frozenset({"language_understanding"})
"""Kinds of suites that measure models from elsewhere too."""

SuiteConfig = Annotated[
    ValidationSlices | Recall | LanguageUnderstanding, Field(discriminator="kind")
]
"""Any suite; a kind's measurement is ``difftransformer.evaluation.<kind>.measure``."""


def suite_module(kind: str) -> str:
    """Name of the module with a kind's ``measure``: loaded by name, so fingerprints add it."""
    return f"difftransformer.evaluation.{kind}"


class EvaluationSlice(Settings):
    """One suite on one run at one scale, resolved: nothing in it refers to another entry."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    suite: str = setting(meaning="Name of the suite in evaluations.yaml.")
    config: SuiteConfig = setting(meaning="What the suite measures.")
    pretrained: PretrainedModel | None = setting(
        None, meaning="The model where it comes from elsewhere; null: the run's own."
    )
