"""A language model behind an OpenAI-compatible endpoint as the judge.

It sees what Lookback Lens (Chuang et al. 2024) shows one: document, reference, output. A reply
without one clear verdict is asked for again, then counts as unjudged. Every judgment is kept by
the content of its request, so that what was asked once is never sent again.
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
from difftransformer.evaluations.hallucination.answers import Answer, Judgment, states_nothing
from difftransformer.machine.locks import locked
from difftransformer.provenance.published import publish, read_published

logger = logging.getLogger(__name__)

_MALFORMED_RETRIES = 2
"""Times an item is sent again after a reply without one clear verdict; then it is unjudged."""
CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English, for the estimate alone."""


class Prompt(NamedTuple):
    """A version of the prompt; a better wording is a new one, once judgments were made with it.

    Attributes:
        system: What the judge is told first.
        user: Template of the case, with {facts}, {document}, {question}, {kind}, {reference} and
            {output}.
        facts: What stands for {facts} in format recall.
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
"""Every version by its name in `EndpointJudge.prompt`."""

_VERDICT = re.compile(r"^\W*verdict\W+(faithful|hallucinated)\W*$", re.IGNORECASE | re.MULTILINE)


class Estimate(NamedTuple):
    """What judging would take: calls that nothing is kept for, and at most so many tokens."""

    calls: int
    kept: int
    prompt_tokens: int
    completion_tokens: int
    price: float | None

    def __str__(self) -> str:
        price = "price unknown" if self.price is None else f"at most {self.price:.2f} in all"
        return (
            f"{self.calls} calls, {self.kept} judgments are kept already; about "
            f"{self.prompt_tokens:,} tokens sent, at most {self.completion_tokens:,} returned; "
            f"{price}; asking again after an unclear reply is not counted"
        )


class Kept(Settings):
    """What a judge replied to one request."""

    prompt: str = Field(description="Version of the prompt")
    request: dict[str, Any] = Field(description="Body of the request: model, messages, settings")
    replies: list[str] = Field(description="Every reply, the last one alone may be clear")
    served_by: str = Field(description="Model as the server names it")
    usage: dict[str, int] = Field({}, description="Tokens over all replies, as the server counts")


class Endpoint:
    """Judges by asking a model, at most once about the same."""

    def __init__(self, config: EndpointJudge, kept: Path) -> None:
        self._config, self._folder = config, kept

    def judge(self, answers: Sequence[Answer]) -> list[Judgment]:
        """Judge answers, in their order; log beforehand what it will take.

        An empty answer is unjudged, since it states nothing.

        Raises:
            UserError: The endpoint cannot be reached; what it has judged is kept for the next time.
        """
        estimate = self.estimate(answers)
        logger.info("judge %s: %s", self._config.model, estimate)
        chat = ChatEndpoint(self._config, self._folder / "pace") if estimate.calls else None
        failures: list[Exception] = []

        def work(answer: Answer) -> Judgment | None:
            if failures:  # a dead endpoint is not asked for all the rest
                return None
            try:
                return self._judge(answer, chat)
            except Exception as error:
                failures.append(error)
                return None

        pool = ThreadPoolExecutor(self._config.parallel)
        try:
            found = list(pool.map(work, answers))
        finally:
            pool.shutdown(cancel_futures=True)
        if failures:
            raise failures[0]
        return [one for one in found if one is not None]

    def estimate(self, answers: Sequence[Answer]) -> Estimate:
        """Say what judging these answers would take, without sending anything."""
        stated = [one for one in answers if one.output.split()]
        requests = [self.request(one) for one in stated]
        new = [one for one in requests if self._find(one) is None]
        characters = sum(len(part["content"]) for one in new for part in one["messages"])
        sent, back = characters // CHARACTERS_PER_TOKEN, len(new) * self._config.max_tokens
        rates = (self._config.price_prompt, self._config.price_completion)
        price = None
        if rates[0] is not None and rates[1] is not None:
            price = (sent * rates[0] + back * rates[1]) / 1e6
        return Estimate(len(new), len(requests) - len(new), sent, back, price)

    def request(self, answer: Answer) -> dict[str, Any]:
        """Body of the request about an answer."""
        return {
            "model": self._config.model,
            "messages": messages(self._config.prompt, answer),
            "temperature": 0,
            "max_tokens": self._config.max_tokens,
        }

    def _judge(self, answer: Answer, chat: ChatEndpoint | None) -> Judgment:
        if not answer.output.split():
            return states_nothing(answer)
        request = self.request(answer)
        kept = self._find(request)
        if kept is None:
            # Threads and jobs wait that would ask for the same meanwhile.
            with locked(self._path(request).with_name("lock")):
                kept = self._find(request)  # by who was faster
                if kept is None:
                    assert chat is not None, "an estimate without calls"
                    kept = self._ask(chat, request)
                    publish(self._path(request), kept.model_dump(mode="json"))
        free = verdict(kept.replies[-1])
        return Judgment(
            set=answer.set,
            index=answer.index,
            free=free,
            cause="malformed" if free is None else "",
            reason=kept.replies[-1].strip(),
            usage=kept.usage,
        )

    def _find(self, request: dict[str, Any]) -> Kept | None:
        """Return what is kept for a request: a file by the hash of prompt version and request."""
        path = self._path(request)
        try:
            return Kept.model_validate_json(read_published(path))
        except FileNotFoundError:
            return None
        except (ValidationError, DataError):
            raise DataError(
                f"{path}: not a complete judgment; delete it to have it judged again"
            ) from None

    def _path(self, request: dict[str, Any]) -> Path:
        content = json.dumps([self._config.prompt, request], sort_keys=True, ensure_ascii=True)
        name = hashlib.sha256(content.encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"

    def _ask(self, chat: ChatEndpoint, request: dict[str, Any]) -> Kept:
        replies, usage, served_by = list[str](), Counter[str](), ""
        for _ in range(1 + _MALFORMED_RETRIES):
            body = chat.send(request)
            text, served_by = _text(body), str(body.get("model") or "")
            usage.update(_usage(body))
            replies.append(text)
            if verdict(text) is not None:
                break
        return Kept(
            prompt=self._config.prompt, request=request, replies=replies,
            served_by=served_by, usage=dict(usage),
        )  # fmt: skip


open_judge = Endpoint
"""Nothing is sent when it opens, and no key is needed before a request is due."""


def messages(version: str, answer: Answer) -> list[dict[str, str]]:
    """Write the case of an answer as messages of a chat."""
    prompt = PROMPTS[version]
    question = f"Question:\n{answer.question}\n\n" if answer.task == "answer" else ""
    user = prompt.user.format(
        facts=prompt.facts if answer.format == "recall" else "",
        document=answer.document,
        question=question,
        kind=answer.task,
        reference=answer.reference,
        output=answer.stated,
    )
    return [{"role": "system", "content": prompt.system}, {"role": "user", "content": user}]


def verdict(reply: str) -> bool | None:
    """Read a reply: True for faithful, False for hallucinated, None without one clear verdict."""
    found = {match.group(1).lower() for match in _VERDICT.finditer(reply)}
    return found == {"faithful"} if len(found) == 1 else None


def _text(body: Mapping[str, Any]) -> str:
    """Text of a chat completion; what has another shape is an empty reply."""
    try:
        content = body["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def _usage(body: Mapping[str, Any]) -> dict[str, int]:
    usage = body.get("usage")
    found = usage if isinstance(usage, Mapping) else {}
    names = ("prompt_tokens", "completion_tokens")
    return {name: found[name] for name in names if isinstance(found.get(name), int)}
