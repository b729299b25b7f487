"""Language models behind OpenAI-compatible endpoints, asked at a pace that all jobs share.

Address and key are read from the environment when a request is due, and stand in no file and no
message. Light as long as nothing is asked: planning checks the environment.
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
    """The endpoint cannot be reached or refuses; what it has judged is kept."""


class ChatEndpoint:
    """Sends requests to `/chat/completions`; waits and repeats as the server says.

    Args:
        config: Where it is and how it is asked.
        pace: File that all processes share.

    Raises:
        ConfigError: The environment lacks the URL or the key.
    """

    def __init__(self, config: EndpointJudge, pace: Path) -> None:
        require_environment(config)
        from openai import OpenAI

        self._config, self._pace = config, Pace(pace, config.requests_per_minute)
        self._client = OpenAI(
            base_url=os.environ[config.url_from].strip(),
            api_key=os.environ[config.key_from].strip(),  # a file that it came from ends in a line
            timeout=config.timeout,
            max_retries=config.max_retries,
        )

    def send(self, request: dict[str, Any]) -> Mapping[str, Any]:
        """Return the body of a reply; an empty one where it is no JSON object.

        Raises:
            EndpointError: It cannot be reached, or refuses.
        """
        import openai

        self._pace.wait()
        try:
            reply = self._client.chat.completions.with_raw_response.create(**request)
        except openai.APIStatusError as error:
            said = self._without_secrets(" ".join(error.response.text.split()))[:200]
            why = f"the endpoint answers with status {error.status_code}: {said}"
        except openai.APIConnectionError as error:  # a timeout is one, too
            tries = f"{self._config.max_retries + 1} tries at the URL in {self._config.url_from}"
            why = f"{type(error).__name__} after {tries}"
        else:
            try:
                body = reply.http_response.json()
            except ValueError:
                return {}
            return body if isinstance(body, Mapping) else {}
        raise EndpointError(
            f"judge {self._config.model}: {why}; what it has judged is kept: call again to go on"
        )

    def _without_secrets(self, text: str) -> str:
        for name in (self._config.key_from, self._config.url_from):
            if secret := os.environ.get(name, "").strip():
                text = text.replace(secret, f"<{name}>")
        return text


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


class Pace:
    """Lets at most so many requests a minute start, whichever process or thread starts them.

    Args:
        path: File that the processes share.
        per_minute: Most requests in a minute; they start evenly spaced.
    """

    def __init__(self, path: Path, per_minute: float) -> None:
        self._path, self._interval = path, 60 / per_minute
        path.parent.mkdir(parents=True, exist_ok=True)

    def wait(self) -> None:
        """Wait for the next free moment and take it."""
        with self._path.open("a+", encoding="ascii") as file:
            wait_for_lock(file.fileno())
            file.seek(0)
            now, written = time.time(), file.read()
            try:
                booked, noted = map(float, written.split())
            except ValueError:
                booked = noted = now
            # What was noted after now is of a clock that was put back since.
            mine = max(now, booked) if noted <= now else now
            file.truncate(0)
            file.write(f"{mine + self._interval:.6f} {now}")
        time.sleep(max(0.0, mine - now))
