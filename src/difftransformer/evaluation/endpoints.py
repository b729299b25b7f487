"""Requests to OpenAI-compatible endpoints, under a rate limit that all jobs share.

URL and key are read from the environment and written to no file and no message.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from difftransformer.config.judges import EndpointJudge
from difftransformer.errors import ConfigError, UserError
from difftransformer.machine.locks import wait_for_lock


class EndpointError(UserError):
    """An endpoint cannot be reached or refuses a request; earlier judgments are cached."""


class ChatEndpoint:
    """Client of an OpenAI-compatible `/chat/completions` endpoint, with rate limit and retries.

    Args:
        config: Settings of the endpoint: model, rate limit, retries, and the names of the
            environment variables with its URL and key.
        pace: File of the `RateLimiter`, shared by all processes.

    Raises:
        ConfigError: The environment lacks the URL or the key.
    """

    def __init__(self, config: EndpointJudge, pace: Path) -> None:
        require_environment(config)
        from openai import OpenAI

        self._config, self._pace = config, RateLimiter(pace, config.requests_per_minute)
        self._client = OpenAI(
            base_url=os.environ[config.url_from].strip(),
            api_key=os.environ[config.key_from].strip(),  # without the newline of a file
            timeout=config.timeout,
            max_retries=config.max_retries,
        )

    def send(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Send a chat completion request and return the body of the reply.

        A reply that is not a JSON object gives an empty mapping.

        Raises:
            EndpointError: The endpoint cannot be reached or refuses.
        """
        import openai

        self._pace.wait()
        try:
            reply = self._client.chat.completions.with_raw_response.create(**request)
        except openai.APIStatusError as error:
            answer = self._without_secrets(" ".join(error.response.text.split()))[:200]
            reason = f"the endpoint answers with status {error.status_code}: {answer}"
        except openai.APIConnectionError as error:  # timeouts included
            tries = f"{self._config.max_retries + 1} tries at the URL in {self._config.url_from}"
            reason = f"{type(error).__name__} after {tries}"
        else:
            try:
                body = reply.http_response.json()
            except ValueError:
                return {}
            return body if isinstance(body, Mapping) else {}
        raise EndpointError(
            f"judge {self._config.model}: {reason}; earlier judgments are cached: run the command "
            "again to resume"
        )

    def _without_secrets(self, text: str) -> str:
        for name in (self._config.key_from, self._config.url_from):
            if secret := os.environ.get(name, "").strip():
                text = text.replace(secret, f"<{name}>")
        return text


def require_environment(config: EndpointJudge) -> None:
    """Check that the environment variables of an endpoint's URL and key are set and valid.

    Raises:
        ConfigError: A variable is missing or malformed; the message names the variable.
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
        raise ConfigError(
            f"{config.url_from}: not an http or https URL with a host and a valid port"
        )
    if not os.environ[config.key_from].strip().isascii():
        raise ConfigError(f"{config.key_from}: has characters that no key has; copy it again")


class RateLimiter:
    """Limits the requests per minute of all processes and threads, through a shared file.

    Args:
        path: The shared file.
        per_minute: Maximum number of requests per minute; they start evenly spaced.
    """

    def __init__(self, path: Path, per_minute: float) -> None:
        self._path, self._interval = path, 60 / per_minute
        path.parent.mkdir(parents=True, exist_ok=True)

    def wait(self) -> None:
        """Sleep until the next free time slot for a request, and reserve that slot."""
        with self._path.open("a+", encoding="ascii") as file:
            wait_for_lock(file.fileno())
            file.seek(0)
            now, content = time.time(), file.read()
            try:
                next_slot, written_at = map(float, content.split())
            except ValueError:
                next_slot = written_at = now
            # An entry from the future was written before the clock was set back.
            slot = max(now, next_slot) if written_at <= now else now
            file.truncate(0)
            file.write(f"{slot + self._interval:.6f} {now}")
        time.sleep(max(0.0, slot - now))
