"""Weights of a layer to and from the code that its authors published (github microsoft/unilm).

V1 is Diff-Transformer/multihead_flashdiff_1.py, V2 Diff-Transformer/Diff-Transformer-V2. Theirs
turns neighboring dimensions (2i, 2i + 1) together, ours the halves (i, i + d/2), so the rows of a
head of queries and keys are permuted; ours holds all projections of the input in one matrix. Both
compute the same function with the authors' settings: lambda_init by depth with ``layer_index`` for
their ``depth``, norm_eps 1e-5, neighbors paired, sigmoid.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from difftransformer.errors import CheckpointError
from difftransformer.models import attention
from difftransformer.models.attention.base import Attention

_NAMES: Mapping[str, Mapping[str, str]] = {
    "diff_v1": {
        **{f"{part}_proj.weight": f"{part}_proj.weight" for part in "qkv"},
        "o_proj.weight": "out_proj.weight",
        "head_norm.weight": "subln.weight",
        **{name: name for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")},
    },
    "diff_v2": {
        **{f"{part}_proj.weight": f"{part}_proj.weight" for part in "qkvo"},
        "further_proj.weight": "lambda_proj.weight",
    },
}
"""The authors' name of each tensor, by variant."""
_TURNED = ("q_proj.weight", "k_proj.weight")
_JOINT = "qkv_proj"


def unilm_state_dict(layer: Attention) -> dict[str, Tensor]:
    """Return a layer's weights by the authors' names, copied.

    Raises:
        CheckpointError: Its authors published no layer, or theirs has tensors that this one lacks.
    """
    ours = _tensors(layer)
    names = _names(layer)
    _same(ours.keys(), names.keys(), type(layer).__name__, "the authors' layer")
    return {
        names[name]: (_interleaved(tensor, layer.head_dim) if name in _TURNED else tensor).clone()
        for name, tensor in ours.items()
    }


@torch.no_grad()
def load_unilm_state_dict(layer: Attention, weights: Mapping[str, Tensor]) -> None:
    """Copy weights in the authors' layout into a layer.

    Raises:
        CheckpointError: Its authors published no layer, or a tensor is missing, unknown or of
            another shape; the layer is as it was.
    """
    ours, names = _tensors(layer), _names(layer)
    _same(weights.keys(), {names.get(name, name) for name in ours}, "weights", type(layer).__name__)
    for name, tensor in ours.items():
        if (found := weights[names[name]]).shape != tensor.shape:
            raise CheckpointError(
                f"{names[name]}: has shape {[*found.shape]}, {type(layer).__name__} wants "
                f"{[*tensor.shape]}; give it the sizes that the weights were trained with"
            )
    for name, tensor in ours.items():
        found = weights[names[name]]
        tensor.copy_(_halves(found, layer.head_dim) if name in _TURNED else found)


def _names(layer: Attention) -> Mapping[str, str]:
    """Return the authors' names of a layer's tensors; subclasses of a variant inherit none."""
    modules = (kind.__module__.rpartition(".") for kind in type(layer).__mro__)
    variant = next(name for package, _, name in modules if package == attention.__name__)
    names = _NAMES.get(variant)
    if names is None:
        raise CheckpointError(f"{type(layer).__name__}: its authors published no layer of it")
    return names


def _tensors(layer: Attention) -> dict[str, Tensor]:
    """The layer's own tensors by name, those of the joint projection one by one, as views."""
    found: dict[str, Tensor] = {}
    for name, tensor in layer.state_dict().items():
        if name == f"{_JOINT}.weight":
            parts = layer.qkv_proj.matrices(_JOINT)
            found |= {f"{part}.weight": rows.detach() for part, rows in parts}
        else:
            found[name] = tensor
    return {name.lstrip("."): tensor for name, tensor in found.items()}


def _same(found: object, wanted: object, what: str, whose: str) -> None:
    have, want = set(found), set(wanted)  # type: ignore[call-overload]
    if more := sorted(have - want):
        raise CheckpointError(f"{what}: {', '.join(more)} is unknown to {whose}")
    if less := sorted(want - have):
        raise CheckpointError(f"{what}: lacks {', '.join(less)}, which {whose} has")


def _interleaved(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder the rows of each head from halves (i, i + d/2) to neighbors (2i, 2i + 1)."""
    return rows.reshape(-1, 2, head_dim // 2, rows.shape[-1]).transpose(1, 2).flatten(0, 2)


def _halves(rows: Tensor, head_dim: int) -> Tensor:
    """The inverse of `_interleaved`."""
    return rows.reshape(-1, head_dim // 2, 2, rows.shape[-1]).transpose(1, 2).flatten(0, 2)
