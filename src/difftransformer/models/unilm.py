"""Convert layer weights to and from the authors' published code (github microsoft/unilm).

V1 is Diff-Transformer/multihead_flashdiff_1.py, V2 Diff-Transformer/Diff-Transformer-V2. unilm's
RoPE rotates neighboring dimensions (2i, 2i + 1), ours the halves (i, i + d/2), so the rows of each
query and key head are permuted; ours has all input projections in one matrix. Both compute the same
function with the authors' settings: lambda_init by depth with ``layer_index`` for their ``depth``,
norm_eps 1e-5, pairs of neighbors, sigmoid.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from difftransformer.errors import CheckpointError
from difftransformer.models import attention
from difftransformer.models.attention.base import Attention

_NAMES: Mapping[str, Mapping[str, str]] = {
    "diff_v1": {
        **{f"{matrix}_proj.weight": f"{matrix}_proj.weight" for matrix in "qkv"},
        "o_proj.weight": "out_proj.weight",
        "head_norm.weight": "subln.weight",
        **{name: name for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
    },
    "diff_v2": {
        **{f"{matrix}_proj.weight": f"{matrix}_proj.weight" for matrix in "qkvo"},
        "further_proj.weight": "lambda_proj.weight",
    },
}
"""unilm's name of each tensor, by variant."""
_ROTATED = ("q_proj.weight", "k_proj.weight")
_FUSED = "qkv_proj"


def unilm_state_dict(layer: Attention) -> dict[str, Tensor]:
    """Return a copy of an attention layer's weights with unilm's names and layout.

    Raises:
        CheckpointError: unilm has no such layer, or its layer has tensors that this one lacks.
    """
    tensors, names = _tensors(layer), _names(layer)
    _require_equal(tensors.keys(), names.keys(), type(layer).__name__, "unilm's layer")
    return {
        names[name]: (
            _to_interleaved(tensor, layer.head_dim) if name in _ROTATED else tensor
        ).clone()
        for name, tensor in tensors.items()
    }


@torch.no_grad()
def load_unilm_state_dict(layer: Attention, state_dict: Mapping[str, Tensor]) -> None:
    """Copy weights that have unilm's names and layout into an attention layer.

    Raises:
        CheckpointError: unilm has no such layer, or a tensor is missing, unknown or of another
            shape; the layer is unchanged.
    """
    tensors, names = _tensors(layer), _names(layer)
    expected = {names.get(name, name) for name in tensors}
    _require_equal(state_dict.keys(), expected, "weights", type(layer).__name__)
    for name, tensor in tensors.items():
        if (shape := state_dict[names[name]].shape) != tensor.shape:
            raise CheckpointError(
                f"{names[name]}: has shape {[*shape]}, {type(layer).__name__} needs "
                f"{[*tensor.shape]}; make the layer with the sizes that the weights were trained "
                "with"
            )
    for name, tensor in tensors.items():
        weight = state_dict[names[name]]
        tensor.copy_(_to_halves(weight, layer.head_dim) if name in _ROTATED else weight)


def _names(layer: Attention) -> Mapping[str, str]:
    """Return unilm's names of a layer's tensors; subclasses of a variant do not inherit them."""
    modules = (cls.__module__.rpartition(".") for cls in type(layer).__mro__)
    variant = next(name for package, _, name in modules if package == attention.__name__)
    names = _NAMES.get(variant)
    if names is None:
        raise CheckpointError(f"{type(layer).__name__}: its authors published no layer of it")
    return names


def _tensors(layer: Attention) -> dict[str, Tensor]:
    """Return the layer's tensors by name, each matrix of the fused projection by itself."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in layer.state_dict().items():
        if name == f"{_FUSED}.weight":
            weights = layer.qkv_proj.named_weights(_FUSED)
            tensors |= {f"{matrix}.weight": weight.detach() for matrix, weight in weights}
        else:
            tensors[name] = tensor
    return {name.lstrip("."): tensor for name, tensor in tensors.items()}


def _require_equal(
    names: Collection[str], expected: Collection[str], what: str, layer: str
) -> None:
    if unknown := sorted(set(names) - set(expected)):
        raise CheckpointError(f"{what}: {', '.join(unknown)} is unknown to {layer}")
    if missing := sorted(set(expected) - set(names)):
        raise CheckpointError(f"{what}: lacks {', '.join(missing)}, which {layer} has")


def _to_interleaved(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder the rows of each head from halves (i, i + d/2) to neighbors (2i, 2i + 1)."""
    return weight.reshape(-1, 2, head_dim // 2, weight.shape[-1]).transpose(1, 2).flatten(0, 2)


def _to_halves(weight: Tensor, head_dim: int) -> Tensor:
    """Invert `_to_interleaved`."""
    return weight.reshape(-1, head_dim // 2, 2, weight.shape[-1]).transpose(1, 2).flatten(0, 2)
