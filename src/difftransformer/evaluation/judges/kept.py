"""Judgements that were paid for, a file each, named by the content of what was asked."""

import hashlib
import json
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import Field, ValidationError

from difftransformer.config.base import Settings
from difftransformer.errors import DataError
from difftransformer.provenance.published import publish, read_published


class Kept(Settings):
    """What a judge replied to one request."""

    prompt: str = Field(description="Version of the prompt")
    request: dict[str, Any] = Field(description="Body of the request: model, messages, settings")
    replies: list[str] = Field(description="Every reply, the last one alone may be clear")
    served_by: str = Field(description="Model as the server names it")
    usage: dict[str, int] = Field({}, description="Tokens over all replies, as the server counts")


class KeptJudgements:
    """Judgements below a folder, by the hash of prompt version and request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()

    def find(self, prompt: str, request: dict[str, Any]) -> Kept | None:
        """Return what is kept for a request.

        Raises:
            DataError: The file is damaged.
        """
        path = self._path(prompt, request)
        try:
            return Kept.model_validate_json(read_published(path))
        except FileNotFoundError:
            return None
        except (ValidationError, DataError):
            raise DataError(
                f"{path}: not a whole judgement as kept; delete it, and it is asked for again"
            ) from None

    def keep(self, kept: Kept) -> None:
        """Keep a judgement, whole or not at all; any thread may."""
        path = self._path(kept.prompt, kept.request)
        with self._lock:
            publish(path, kept.model_dump(mode="json"))

    def _path(self, prompt: str, request: dict[str, Any]) -> Path:
        content = json.dumps([prompt, request], sort_keys=True, ensure_ascii=True)
        name = hashlib.sha256(content.encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"
