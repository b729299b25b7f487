"""The trained matrices of Dex, read from the adapter file of a fine-tuned run.

They are not in `convert.dex`, since that imports peft and evaluations read them for every model.
Shapes: L = layers, H = heads, e = width of a head's output.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from difftransformer.convert.checkpoint import ADAPTER
from difftransformer.models.config import lambda_metric
from difftransformer.provenance.layout import TRAINING
from difftransformer.provenance.result import read_result


class DexWeights(NamedTuple):
    """The matrices by which Dex changes head outputs: O becomes O (I - M).

    Merging the adapter folds I - M into W_O.

    Attributes:
        matrices: M = lambda W_D, float64 [L, H, e, e]; zeros for heads that Dex does not change.
        selected: Heads that Dex changes, bool [L, H].
    """

    matrices: Tensor
    selected: Tensor


def read_dex_weights(folder: Path | None, layers: int, heads: int) -> DexWeights | None:
    """Return the Dex matrices of a fine-tuned run (arXiv 2505.16333, equation 3), or None.

    None means that the model is not stored or was fine-tuned without Dex.

    Args:
        folder: Folder of the model and its training's result; None if the model is not stored.
        layers: Number of layers, L.
        heads: Number of output heads per layer, H.
    """
    if folder is None or not (folder / ADAPTER).is_file():
        return None
    tensors = load_file(folder / ADAPTER)
    if not any("dex_difference" in name for name in tensors):
        return None

    def tensor_ending_in(suffix: str) -> Tensor:
        (match,) = (tensor for name, tensor in tensors.items() if name.endswith(suffix))
        return match

    metrics = read_result(folder / TRAINING).metrics
    matrices, selected = [], torch.zeros(layers, heads, dtype=torch.bool)
    for layer in range(layers):
        prefix = f"layers.{layer}.self_attn.o_proj.dex_"
        layer_heads = tensor_ending_in(prefix + "heads")
        difference = tensor_ending_in(prefix + "difference").double()
        width = difference.shape[-1]
        matrix = torch.zeros(heads, width, width, dtype=torch.float64)
        matrix[layer_heads] = float(metrics[lambda_metric(layer)] or 0) * difference
        selected[layer, layer_heads] = True
        matrices.append(matrix)
    return DexWeights(torch.stack(matrices), selected)
