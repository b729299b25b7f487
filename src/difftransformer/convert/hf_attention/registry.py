"""Who reads the maps of a pretrained model. Lazy: a reader is imported only when it is needed.

Adding an architecture: write a file here with a `Reader`, and one line below. An architecture that
is not named is read where it hands queries and keys to transformers, as `softmax` says.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from difftransformer.convert.hf_attention.maps import CapturedAttention

Reader = Callable[[Any, Callable[[CapturedAttention], None]], AbstractContextManager[None]]
"""Hands the maps of every attention layer of a model of transformers on while the model runs.

Layers without attention have none. It raises `CheckpointError` of what it cannot read.
"""
_READERS = {
    "DiffLlamaForCausalLM": "diffllama:diffllama_maps",
    "MotifForCausalLM": "motif:motif_maps",
    "Phi4FlashForCausalLM": "phi4flash:phi4flash_maps",
}
"""Class of transformers or of a model's own code -> ``module:function``."""
_ANY = "softmax:softmax_maps"


def reader(model: Any) -> Reader:
    """Return the reader for a model of transformers."""
    module, _, name = _location(_READERS.get(type(model).__name__, _ANY)).partition(":")
    found: Reader = getattr(import_module(module), name)
    return found


def reader_locations() -> list[str]:
    """``module:function`` of all readers: which one it will be, only the loaded model says."""
    return [_location(one) for one in (*_READERS.values(), _ANY)]


def _location(short: str) -> str:
    return f"{__package__}.{short}"
