"""Differential attention layers, and a pipeline that rebuilds the papers' tables and figures.

Names are imported lazily: ``import difftransformer`` does not import torch.

- `DifferentialAttention`, `DifferentialAttentionV2`, ...: one layer per registered variant, see
  `models.layers`; `AttentionLayer` is their base class.
- `KeyValueCache`: KV cache for decoding.
- `unilm_state_dict`, `load_unilm_state_dict`: weights in the layout of the authors' code (unilm).
- `DiffTransformerConfig`, `DiffTransformerForCausalLM`: classes for transformers.
- `register`: registration of these classes with transformers' Auto classes.
- `results`: function that returns the results of all jobs as a pandas DataFrame.
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
    # For editors; a variant without a line here is found as well.
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

# As strings, so that they do not count as imports in fingerprints.
_EXPORTS = {
    "AttentionLayer": "models.layers:AttentionLayer",
    "DiffTransformerConfig": "convert.hf:DiffTransformerConfig",
    "DiffTransformerForCausalLM": "convert.hf:DiffTransformerForCausalLM",
    "KeyValueCache": "models.cache:PrefixCache",
    "load_unilm_state_dict": "models.unilm:load_unilm_state_dict",
    "results": "reporting.frame:results",
    "unilm_state_dict": "models.unilm:unilm_state_dict",
}


def register() -> None:
    """Register this package's models with transformers' Auto classes, without remote code.

    Then ``AutoModelForCausalLM.from_pretrained`` loads models exported in the format huggingface.
    """
    import_module(f"{__name__}.convert.hf")


def __getattr__(name: str) -> "type[AttentionLayer]":
    """Return a public name of the package, imported lazily; layers are found in the registry."""
    value: Any
    if name == "__version__":
        value = import_module("importlib.metadata").version(__name__)
    elif name in _EXPORTS:
        module, _, attribute = _EXPORTS[name].partition(":")
        value = getattr(import_module(f"{__name__}.{module}"), attribute)
    elif name[:1].isupper():
        layers = import_module(f"{__name__}.models.layers")
        if (variant := layers.layer_names().get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = layers.layer_class(variant)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return value  # type: ignore[no-any-return]


def __dir__() -> list[str]:
    """Return all public names of the package, including the layers."""
    layers = import_module(f"{__name__}.models.layers")
    return sorted({*globals(), *_EXPORTS, *layers.layer_names()})
