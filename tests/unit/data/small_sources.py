"""Small file sources for tests."""

import json
from pathlib import Path
from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Source
from difftransformer.data.sources import open_sources


def open_source(**settings: Any) -> Source:
    """Open a source with these settings."""
    dataset = {"sources": {"mine": settings}, "tokenizer": {"kind": "bpe", "vocab_size": 300}}
    return open_sources(DatasetConfig.model_validate(dataset))["mine"]


def write_lines(path: Path, texts: list[str]) -> None:
    """Write a JSON Lines file with one text per line."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
