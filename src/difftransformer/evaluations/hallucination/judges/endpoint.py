"""A language model behind an OpenAI-compatible endpoint as the judge (LLM as a judge).

The judge sees document, reference and output, as in Lookback Lens (Chuang et al. 2024). A request
is repeated after a reply without a clear verdict; without a verdict in the last reply the answer
counts as unjudged. Judgments are cached by the content of their request, so that no request is paid
twice.
"""

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.config.judges import EndpointJudge
from difftransformer.errors import DataError
from difftransformer.evaluation.endpoints import ChatEndpoint
from difftransformer.evaluations.hallucination.answers import Answer, Judgment, empty_judgment
from difftransformer.machine.locks import locked
from difftransformer.provenance.checksums import read_checked, write_checked

logger = logging.getLogger(__name__)

_MALFORMED_RETRIES = 2
"""Maximum number of retries of a request after replies without a clear verdict."""
CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English, used for cost estimates only."""


class Prompt(NamedTuple):
    """One version of the judge's prompt; better wording needs a new version.

    The cache identifies a judgment by its prompt version, among others.

    Attributes:
        system: System message.
        user: Template of the user message, with {facts}, {document}, {question}, {kind},
            {reference} and {output}.
        facts: Text for {facts} in format recall.
    """

    system: str
    user: str
    facts: str


_V1 = Prompt(
    system=(
        "You decide whether a text is faithful to a document. A text is faithful if everything it "
        "states follows from the document. It hallucinates if it states anything that the document "
        "contradicts or does not contain. Leaving something out is no fault. Bad grammar is no "
        "fault as long as one can tell what is stated; words that state nothing at all about the "
        "document are no faithful text. Use the document alone, not what you know otherwise."
    ),
    user=(
        "{facts}Document:\n<document>\n{document}\n</document>\n\n"
        "{question}Right {kind}, for comparison:\n<reference>\n{reference}\n</reference>\n\n"
        "Text to judge:\n<text>\n{output}\n</text>\n\n"
        "First name in one or two sentences the worst disagreement between the text and the "
        "document, if there is any. Then write a last line that is exactly one of\n"
        "Verdict: faithful\nVerdict: hallucinated"
    ),
    facts=(
        "The document is a row of code words. A word that starts with k directly followed by a "
        "word that starts with v states that this key has this value. All other words state "
        "nothing. In the text to judge, too, each word that starts with k states a value for that "
        "key, the word directly behind it. The text is faithful if the document states every one "
        "of these pairs.\n\n"
    ),
)

PROMPTS = {"v1": _V1}
"""Versions of the judge's prompt by name, the values of `EndpointJudge.prompt`."""

_VERDICT = re.compile(r"^\W*verdict\W+(faithful|hallucinated)\W*$", re.IGNORECASE | re.MULTILINE)


class Estimate(NamedTuple):
    """Estimated cost of judging: calls to make, cached judgments, bounds of tokens, and price."""

    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    price: float | None

    def __str__(self) -> str:
        price = "price unknown" if self.price is None else f"at most {self.price:.2f} in total"
        return (
            f"{self.calls} calls, {self.cached} judgments are cached; about "
            f"{self.prompt_tokens:,} tokens sent, at most {self.completion_tokens:,} returned; "
            f"{price}; repeated calls after an unclear reply are not included"
        )


class CachedJudgment(Settings):
    """A request to the judge and every reply to it, as stored in the cache."""

    prompt: str = Field(description="Version of the prompt")
    request: dict[str, Any] = Field(description="Body of the request: model, messages, settings")
    replies: list[str] = Field(
        description="Every reply; only the last one can have a clear verdict"
    )
    served_by: str = Field(description="Model name that the server returned")
    usage: dict[str, int] = Field({}, description="Tokens over all replies, counted by the server")


class ModelJudge:
    """Judge that sends each answer to a language model, and caches the replies.

    Creating a judge sends nothing and needs no API key.
    """

    def __init__(self, config: EndpointJudge, cache_folder: Path) -> None:
        self._config, self._folder = config, cache_folder

    def judge(self, answers: Sequence[Answer]) -> list[Judgment]:
        """Return the judgments of answers, in their order; the cost estimate is logged first.

        An empty answer stays unjudged.

        Raises:
            UserError: The endpoint cannot be reached; finished judgments stay in the cache.
        """
        estimate = self.estimate(answers)
        logger.info("judge %s: %s", self._config.model, estimate)
        chat = ChatEndpoint(self._config, self._folder / "pace") if estimate.calls else None
        failures: list[Exception] = []

        def work(answer: Answer) -> Judgment | None:
            if failures:  # no further requests to an endpoint that fails
                return None
            try:
                return self._judge(answer, chat)
            except Exception as error:
                failures.append(error)
                return None

        pool = ThreadPoolExecutor(self._config.parallel)
        try:
            judgments = list(pool.map(work, answers))
        finally:
            pool.shutdown(cancel_futures=True)
        if failures:
            raise failures[0]
        return [judgment for judgment in judgments if judgment is not None]

    def estimate(self, answers: Sequence[Answer]) -> Estimate:
        """Return the estimated cost of judging answers, without sending a request."""
        requests = [self.request(answer) for answer in answers if answer.output.split()]
        new = [request for request in requests if self._find(request) is None]
        characters = sum(
            len(message["content"]) for request in new for message in request["messages"]
        )
        sent, returned = characters // CHARACTERS_PER_TOKEN, len(new) * self._config.max_tokens
        rates = (self._config.price_prompt, self._config.price_completion)
        price = None
        if rates[0] is not None and rates[1] is not None:
            price = (sent * rates[0] + returned * rates[1]) / 1e6
        return Estimate(len(new), len(requests) - len(new), sent, returned, price)

    def request(self, answer: Answer) -> dict[str, Any]:
        """Return the body of the request that asks for a judgment of an answer."""
        return {
            "model": self._config.model,
            "messages": messages(self._config.prompt, answer),
            "temperature": 0,
            "max_tokens": self._config.max_tokens,
        }

    def _judge(self, answer: Answer, chat: ChatEndpoint | None) -> Judgment:
        if not answer.output.split():
            return empty_judgment(answer)
        request = self.request(answer)
        cached = self._find(request)
        if cached is None:
            # Other threads and jobs with the same request wait here.
            with locked(self._path(request).with_name("lock")):
                cached = self._find(request)  # another one may have cached it
                if cached is None:
                    assert chat is not None, "an estimate without calls"
                    cached = self._ask(chat, request)
                    write_checked(self._path(request), cached.model_dump(mode="json"))
        faithful = verdict(cached.replies[-1])
        return Judgment(
            set=answer.set,
            index=answer.index,
            faithful=faithful,
            cause="malformed" if faithful is None else "",
            reason=cached.replies[-1].strip(),
            usage=cached.usage,
        )

    def _find(self, request: dict[str, Any]) -> CachedJudgment | None:
        """Return the cached replies to a request; their file is named by a hash of the request."""
        path = self._path(request)
        try:
            return CachedJudgment.model_validate_json(read_checked(path))
        except FileNotFoundError:
            return None
        except (ValidationError, DataError):
            raise DataError(
                f"{path}: not a complete judgment; delete the file to judge the answer again"
            ) from None

    def _path(self, request: dict[str, Any]) -> Path:
        content = json.dumps([self._config.prompt, request], sort_keys=True, ensure_ascii=True)
        name = hashlib.sha256(content.encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"

    def _ask(self, chat: ChatEndpoint, request: dict[str, Any]) -> CachedJudgment:
        replies, usage, served_by = list[str](), Counter[str](), ""
        for _ in range(1 + _MALFORMED_RETRIES):
            body = chat.send(request)
            text, served_by = _text(body), str(body.get("model") or "")
            usage.update(_usage(body))
            replies.append(text)
            if verdict(text) is not None:
                break
        return CachedJudgment(
            prompt=self._config.prompt, request=request, replies=replies,
            served_by=served_by, usage=dict(usage),
        )  # fmt: skip


open_judge = ModelJudge


def messages(version: str, answer: Answer) -> list[dict[str, str]]:
    """Return the chat messages that ask for a judgment of an answer, with a prompt version."""
    prompt = PROMPTS[version]
    question = f"Question:\n{answer.question}\n\n" if answer.task == "answer" else ""
    user = prompt.user.format(
        facts=prompt.facts if answer.format == "recall" else "",
        document=answer.document,
        question=question,
        kind=answer.task,
        reference=answer.reference,
        output=answer.judged_text,
    )
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": user}]


def verdict(reply: str) -> bool | None:
    """Return the verdict in a reply: True is faithful, False hallucinated, None unclear."""
    verdicts = {match.group(1).lower() for match in _VERDICT.finditer(reply)}
    return verdicts == {"faithful"} if len(verdicts) == 1 else None


def _text(body: Mapping[str, Any]) -> str:
    """Text of a chat completion; empty for a malformed body."""
    try:
        content = body["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def _usage(body: Mapping[str, Any]) -> dict[str, int]:
    usage = body.get("usage")
    counts = usage if isinstance(usage, Mapping) else {}
    names = ("prompt_tokens", "completion_tokens")
    return {name: counts[name] for name in names if isinstance(counts.get(name), int)}
