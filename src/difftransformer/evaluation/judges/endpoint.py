"""A language model behind an OpenAI-compatible endpoint as the judge.

The client waits and repeats as the server says; a reply without one clear verdict is asked for
again, then counts as unjudged. Every judgement is kept by the content of its request, so that what
was asked once is never sent again. Address and key are read from the environment when a request is
due, and stand in no file and no message.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from difftransformer.config.judges import EndpointJudge
from difftransformer.errors import ConfigError, UserError
from difftransformer.evaluation.answers import Answer
from difftransformer.evaluation.judges.base import Judgement, unjudged
from difftransformer.evaluation.judges.kept import Kept, KeptJudgements
from difftransformer.evaluation.judges.pace import Pace
from difftransformer.evaluation.judges.prompts import messages, verdict

if TYPE_CHECKING:
    from openai import OpenAI

logger = logging.getLogger(__name__)

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English, for the estimate alone."""


class EndpointError(UserError):
    """The endpoint cannot be reached or refuses; what it has judged is kept."""


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
            f"{self.calls} calls, {self.kept} judgements are kept already; about "
            f"{self.prompt_tokens:,} tokens sent, at most {self.completion_tokens:,} returned; "
            f"{price}; asking again after an unclear reply is not counted"
        )


class Endpoint:
    """See `judges.base.Judge`."""

    def __init__(self, config: EndpointJudge, kept: Path) -> None:
        self._config, self._kept = config, KeptJudgements(kept)
        self._pace = Pace(kept / "pace", config.requests_per_minute)

    def judge(self, answers: Sequence[Answer]) -> list[Judgement]:
        """See `Judge.judge`; says beforehand what it will take."""
        estimate = self.estimate(answers)
        logger.info("judge %s: %s", self._config.model, estimate)
        client = open_client(self._config) if estimate.calls else None
        failures: list[Exception] = []

        def work(answer: Answer) -> Judgement | None:
            if failures:  # a dead endpoint is not asked for all the rest
                return None
            try:
                return self._judge(answer, client)
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
        new = [one for one in requests if self._kept.find(self._config.prompt, one) is None]
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

    def _judge(self, answer: Answer, client: "OpenAI | None") -> Judgement:
        if not answer.output.split():
            return unjudged(answer, "empty", "states nothing")
        request = self.request(answer)
        kept = self._kept.find(self._config.prompt, request)
        if kept is None:
            assert client is not None, "an estimate without calls"
            kept = self._ask(client, request)
            self._kept.keep(kept)
        free = verdict(kept.replies[-1])
        return Judgement(
            set=answer.set,
            index=answer.index,
            free=free,
            cause="malformed" if free is None else "",
            reason=kept.replies[-1].strip(),
            usage=kept.usage,
        )

    def _ask(self, client: "OpenAI", request: dict[str, Any]) -> Kept:
        replies, usage, served_by = list[str](), dict[str, int](), ""
        for _ in range(1 + self._config.malformed_retries):
            self._pace.wait()
            body = self._send(client, request)
            text, served_by = _text(body), str(body.get("model") or "")
            for name, number in _usage(body).items():
                usage[name] = usage.get(name, 0) + number
            replies.append(text)
            if verdict(text) is not None:
                break
        return Kept(
            prompt=self._config.prompt,
            request=request,
            replies=replies,
            served_by=served_by,
            usage=usage,
        )

    def _send(self, client: "OpenAI", request: dict[str, Any]) -> Mapping[str, Any]:
        """Return the body of a reply; an empty one where it is no JSON object."""
        import openai

        try:
            reply = client.chat.completions.with_raw_response.create(**request)
        except openai.APIStatusError as error:
            said = self._without_secrets(" ".join(error.response.text.split()))[:200]
            raise EndpointError(
                f"judge {self._config.model}: the endpoint answers with status "
                f"{error.status_code}: {said}; what it has judged is kept: "
                "call again to go on"
            ) from None
        except openai.APIConnectionError as error:  # a timeout is one, too
            raise EndpointError(
                f"judge {self._config.model}: {type(error).__name__} after "
                f"{self._config.max_retries + 1} tries at the URL in {self._config.url_from}; what "
                "it has judged is kept: call again to go on"
            ) from None
        try:
            body = reply.http_response.json()
        except ValueError:
            return {}
        return body if isinstance(body, Mapping) else {}

    def _without_secrets(self, text: str) -> str:
        for name in (self._config.key_from, self._config.url_from):
            if secret := os.environ.get(name, "").strip():
                text = text.replace(secret, f"<{name}>")
        return text


def open_judge(config: EndpointJudge, kept: Path) -> Endpoint:
    """Open the judge; no request is sent, and no key is needed before one is due."""
    return Endpoint(config, kept)


def require_environment(config: EndpointJudge) -> None:
    """Check that the environment names an endpoint and a key.

    Raises:
        ConfigError: It does not; one line with the missing names and the way around.
    """
    missing = [
        name for name in (config.url_from, config.key_from) if not os.environ.get(name, "").strip()
    ]
    if missing:
        raise ConfigError(
            f"judge: endpoint needs {' and '.join(missing)} in the environment (URL of an "
            "OpenAI-compatible endpoint up to and with /v1, and its key); set them, or judge: "
            "lexical"
        )
    try:
        url = urlsplit(os.environ[config.url_from].strip())
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is none
        usable = False
    if not usable:
        raise ConfigError(f"{config.url_from}: no URL of http or https with a host and a port")
    if not os.environ[config.key_from].strip().isascii():
        raise ConfigError(f"{config.key_from}: has signs that no key has; copy it again")


def open_client(config: EndpointJudge) -> "OpenAI":
    """Make the client.

    Raises:
        ConfigError: The environment lacks the URL or the key.
    """
    require_environment(config)
    from openai import OpenAI

    return OpenAI(
        base_url=os.environ[config.url_from].strip(),
        api_key=os.environ[config.key_from].strip(),  # a file that it came from ends in a line
        timeout=config.timeout,
        max_retries=config.max_retries,
    )


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
