"""Sources of a few files, as tests make them."""

import json
from pathlib import Path
from typing import Any

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Source
from difftransformer.data.sources import open_sources


def open_source(**settings: Any) -> Source:
    """The only source of a dataset with these settings."""
    dataset = {"sources": {"mine": settings}, "tokenizer": {"kind": "bpe", "vocab_size": 300}}
    return open_sources(DatasetConfig.model_validate(dataset))["mine"]


def write_lines(path: Path, texts: list[str]) -> None:
    """Write a file of JSON lines, a text each."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
