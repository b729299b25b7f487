"""Settings of the suite of mathematics."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from difftransformer.config.base import setting
from difftransformer.config.math_sets import MATH_SETS, PROMPT
from difftransformer.config.suites.base import SuiteSettings, distinct
from difftransformer.config.validation import nearest


def _known_sets(sets: list[str]) -> list[str]:
    for name in sets:
        if name not in MATH_SETS:
            raise ValueError(f"unknown set '{name}'{nearest(name, MATH_SETS)}")
    return distinct(sets)


def _asks(prompt: str) -> str:
    if prompt.count("{question}") != 1:
        raise ValueError("prompt must have {question} once, where the question goes")
    return prompt


class Mathematics(SuiteSettings):
    """Questions with one answer, asked without examples; the model writes its steps and answers.

    The output is generated greedily, and its answer compared with the published one by
    `math_verify`. Sets are lm-eval tasks of ours, by its own evaluator.
    """

    kind: Literal["mathematics"] = setting(meaning="Which measurement the suite is.")
    tasks: Annotated[list[str], AfterValidator(_known_sets)] = setting(
        list(MATH_SETS),
        meaning="Sets; the average is over all of them.",
        source="arXiv 2410.05258v2, figure 10",
        min_length=1,
    )
    limit: int | None = setting(
        None,
        meaning="First so many items of each set; null: all, and of generated sets 100.",
        unit="items",
        ge=2,
    )
    data: str = setting(
        "hub",
        meaning="'hub': a pinned commit of a public repository; 'builtin': generated items in the "
        "fields of the sets; else a folder with <set>/test.jsonl or .jsonl.gz. `benchmarks` of "
        "config.yaml wins over it.",
    )
    prompt: Annotated[str, AfterValidator(_asks)] = setting(
        PROMPT, meaning="What the model continues; {question} stands for the question."
    )
    until: list[str] = setting(
        ["Question:"], meaning="Texts that end an output, beside the end of the document."
    )
    max_new_tokens: int = setting(
        1024,
        meaning="Room for an output.",
        unit="tokens",
        source="arXiv 2410.05258v2, appendix C: 1K in stage 1, 16K in stage 2",
        gt=0,
    )
    kept_weights: bool = setting(
        False,
        meaning="Whether the weights that training kept on its way (`keep_weights`) are measured "
        "as well.",
    )
    backend: Literal["auto", "eager", "blocked", "sdpa", "flash_attn"] = setting(
        "sdpa",
        meaning="Attention of the model; sdpa is what the `lm_eval` command runs on an exported "
        "checkpoint.",
    )
