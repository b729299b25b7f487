"""Differential attention layers, and the tables and figures of the work on them as artifacts.

Everything is loaded when it is asked for: ``import difftransformer`` alone imports no torch.

- `DifferentialAttention`, `DifferentialAttentionV2`, ...: a layer for each registered variant, see
  `models.layers`; `AttentionLayer` is what they have in common.
- `KeyValueCache`: for decoding.
- `unilm_state_dict`, `load_unilm_state_dict`: weights in the layout of the authors' code (unilm).
- `DiffTransformerConfig`, `DiffTransformerForCausalLM` and `register` (transformers' Auto classes).
- `results`: what was built, as a pandas DataFrame.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from difftransformer.quiet import silence_loggers

if TYPE_CHECKING:
    from difftransformer.convert.hf import DiffTransformerForCausalLM
    from difftransformer.convert.hf_config import DiffTransformerConfig
    from difftransformer.models.cache import PrefixCache as KeyValueCache
    from difftransformer.models.layers import AttentionLayer
    from difftransformer.models.unilm import load_unilm_state_dict, unilm_state_dict
    from difftransformer.reporting.frame import results

    __version__: str
    # A new variant is found without a line here; with one an editor offers it.
    DexAttention: type[AttentionLayer]
    DifferentialAttention: type[AttentionLayer]
    DifferentialAttentionV2: type[AttentionLayer]
    DintAttention: type[AttentionLayer]
    GatedAttention: type[AttentionLayer]
    GroupedDifferentialAttention: type[AttentionLayer]
    OffByOneAttention: type[AttentionLayer]
    SharedDiffAttention: type[AttentionLayer]
    SinkAttention: type[AttentionLayer]
    SoftmaxAttention: type[AttentionLayer]
    ThresholdDifferentialAttention: type[AttentionLayer]

    __all__ = [
        "AttentionLayer",
        "DiffTransformerConfig",
        "DiffTransformerForCausalLM",
        "KeyValueCache",
        "load_unilm_state_dict",
        "register",
        "results",
        "unilm_state_dict",
    ]

silence_loggers()

# By their names, so that no job's code depends on them.
_PLACES = {
    "AttentionLayer": "models.layers:AttentionLayer",
    "DiffTransformerConfig": "convert.hf:DiffTransformerConfig",
    "DiffTransformerForCausalLM": "convert.hf:DiffTransformerForCausalLM",
    "KeyValueCache": "models.cache:PrefixCache",
    "load_unilm_state_dict": "models.unilm:load_unilm_state_dict",
    "results": "reporting.frame:results",
    "unilm_state_dict": "models.unilm:unilm_state_dict",
}


def register() -> None:
    """Make transformers' Auto classes know our models, without remote code."""
    import_module(f"{__name__}.convert.hf")


def __getattr__(name: str) -> "type[AttentionLayer]":
    """Load what is asked for; names that stand nowhere here are layers of the registry."""
    found: Any
    if name == "__version__":
        found = import_module("importlib.metadata").version(__name__)
    elif name in _PLACES:
        module, _, attribute = _PLACES[name].partition(":")
        found = getattr(import_module(f"{__name__}.{module}"), attribute)
    elif name[:1].isupper():
        layers = import_module(f"{__name__}.models.layers")
        if (variant := layers.layer_names().get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = layers.layer_class(variant)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    """Names to complete, those of the layers among them."""
    layers = import_module(f"{__name__}.models.layers")
    return sorted({*globals(), *_PLACES, *layers.layer_names()})
