"""Registry of the readers that capture attention maps of transformers models.

To add an architecture, write a file with a `Reader` in this folder and a line in `_READERS`. Other
architectures are read through transformers' AttentionInterface (see `softmax`). A reader is
imported when it is needed.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from difftransformer.convert.hf_attention.maps import CapturedAttention

Reader = Callable[[Any, Callable[[CapturedAttention], None]], AbstractContextManager[None]]
"""``reader(model, callback)`` returns a context in which ``callback`` gets each attention layer's
captured inputs as the model runs.

The reader raises `CheckpointError` if it cannot read the model.
"""
_READERS = {
    "DiffLlamaForCausalLM": "diffllama:capture_diffllama",
    "MotifForCausalLM": "motif:capture_motif",
    "Phi4FlashForCausalLM": "phi4flash:capture_phi4flash",
}
"""Location ``module:function`` of the reader, by the name of the model's class."""
_DEFAULT = "softmax:capture_softmax"


def reader(model: Any) -> Reader:
    """Return the function that captures the attention of a transformers model of this class."""
    location = _location(_READERS.get(type(model).__name__, _DEFAULT))
    module, _, name = location.partition(":")
    function: Reader = getattr(import_module(module), name)
    return function


def reader_locations() -> list[str]:
    """Return the locations ``module:function`` of all readers, without importing them."""
    return [_location(reader) for reader in (*_READERS.values(), _DEFAULT)]


def _location(short: str) -> str:
    return f"{__package__}.{short}"
