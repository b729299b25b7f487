"""Settings of the judges of generated answers, and the config of a judging job."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from difftransformer.config.base import Settings, distinct, setting

JudgeName = Literal["lexical", "endpoint"]


def _named(value: Any) -> Any:
    """Return a single name as a list, and `both` as the paper's judge and the offline one."""
    if value == "both":
        return ["endpoint", "lexical"]
    return [value] if isinstance(value, str) else value


Judges = Annotated[
    list[JudgeName], BeforeValidator(_named), Field(min_length=1), AfterValidator(distinct)
]
"""Names of one or more judges; columns without a judge's name show the first judge."""


class LexicalJudge(Settings):
    """A judge that works offline by looking up words in the document.

    Format recall: every pair of a key and the word after it that an answer states must occur in the
    document. This is exact, not an estimate.

    Format text: every number and every name (a capitalized word that does not begin a sentence)
    must occur in the document, ignoring case. Of the other content words (three letters or more, no
    function words), at least `content_share` must occur in a summary, and all in an answer.

    The judge does not notice a wrong relation between right words, and it counts a correct
    paraphrase as unsupported. The result is a lower bound of hallucination on copied words.
    """

    kind: Literal["lexical"] = setting("lexical", meaning="Which judge it is.")
    content_share: float = setting(
        0.8,
        meaning="Share of a summary's content words, names and numbers aside, that must occur in "
        "the document.",
        source="ours, chosen before any model was judged",
        ge=0,
        le=1,
    )


class EndpointJudge(Settings):
    """A judge that is a language model behind an OpenAI-compatible `/chat/completions` endpoint.

    It reads the document, the reference and the model's output, as in Lookback Lens (Chuang et al.
    2024), which the paper follows. Its address and its key are read from the environment only.
    """

    kind: Literal["endpoint"] = setting("endpoint", meaning="Which judge it is.")
    model: str = setting(
        "gpt-4o-2024-05-13",
        meaning="Name of the model, sent with every request.",
        source="the paper says GPT-4o; the version is that of Lookback Lens's code",
        min_length=1,
    )
    prompt: Literal["v1"] = setting(
        "v1", meaning="Version of the judge's prompt; every version stays as it is."
    )
    max_tokens: int = setting(256, meaning="Room for a judgment.", unit="tokens", gt=0)
    requests_per_minute: float = setting(
        60.0, meaning="Most requests, over all jobs on this machine.", unit="1/min", gt=0
    )
    parallel: int = setting(
        4, meaning="Requests of one job that wait at the same time.", unit="requests", gt=0
    )
    timeout: float = setting(60.0, meaning="Longest wait for one reply.", unit="s", gt=0)
    max_retries: int = setting(
        5,
        meaning="Times a request is sent again after a timeout, 408, 409, 429 or 5xx; the client "
        "waits as `Retry-After` says, else longer each time.",
        ge=0,
    )
    price_prompt: float | None = setting(
        None,
        meaning="Price of what is sent, for the estimate; null: unknown.",
        unit="per 1M tokens",
    )
    price_completion: float | None = setting(
        None, meaning="Price of what comes back; null: unknown.", unit="per 1M tokens"
    )
    url_from: str = setting(
        "OPENAI_BASE_URL", meaning="Environment variable with the URL, up to and with `/v1`."
    )
    key_from: str = setting("OPENAI_API_KEY", meaning="Environment variable with the key.")


JudgeConfig = Annotated[LexicalJudge | EndpointJudge, Field(discriminator="kind")]
"""Settings of any judge; the function ``open_judge`` in its `judge_module` runs it."""


class JudgesConfig(Settings):
    """Settings of all judges; `judge` in config.yaml selects the judges to use."""

    lexical: LexicalJudge = setting(LexicalJudge(), meaning="The offline judge")
    endpoint: EndpointJudge = setting(EndpointJudge(), meaning="The language model as a judge")


class JudgmentConfig(Settings):
    """Resolved config of the job in which one judge judges the answers of one run to a suite."""

    scale: str = setting(meaning="Name of the scale the run was resolved at.")
    run: str = setting(meaning="Name of the run in runs.yaml.")
    suite: str = setting(meaning="Name of the suite that generated the answers.")
    kind: str = setting(meaning="Evaluation of the suite, whose judges these are.")
    judge: JudgeConfig = setting(meaning="The judge with its settings.")


def judge_module(kind: str, name: str) -> str:
    """Return the full name of the module of a judge.

    Args:
        kind: Evaluation that defines the judge.
        name: Name of the judge.
    """
    return f"difftransformer.evaluations.{kind}.judges.{name}"


def judged_suite(suite: str, judge: str) -> str:
    """Return the name under which results of a suite by one judge are stored."""
    return f"{suite}_by_{judge}"
