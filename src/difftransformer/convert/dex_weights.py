"""What Dex subtracts of what heads put out, read from what an adaptation left beside the weights.

It is not in `convert.dex`, which imports peft: evaluations read it for every model.

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
    """Heads put out O (I - M) in the place of O; folded, W_O has I - M in it.

    Attributes:
        matrices: M = lambda W_D, float64 [L, H, e, e]; zeros for heads that are left alone.
        changed: Which heads are not, [L, H].
    """

    matrices: Tensor
    changed: Tensor


def read_dex_weights(folder: Path | None, layers: int, heads: int) -> DexWeights | None:
    """Return what Dex changes in a run's model (arXiv 2505.16333, equation 3), None without Dex.

    Args:
        folder: Where the model lies, with the result of its training; None where none is kept.
        layers: L.
        heads: H.
    """
    if folder is None or not (folder / ADAPTER).is_file():
        return None
    tensors = load_file(folder / ADAPTER)
    if not any("dex_difference" in name for name in tensors):
        return None

    def named(end: str) -> Tensor:
        (found,) = (one for name, one in tensors.items() if name.endswith(end))
        return found

    trained = read_result(folder / TRAINING).metrics
    matrices, changed = [], torch.zeros(layers, heads, dtype=torch.bool)
    for layer in range(layers):
        part = f"layers.{layer}.self_attn.o_proj.dex_"
        selected, difference = named(part + "heads"), named(part + "difference").double()
        width = difference.shape[-1]
        matrix = torch.zeros(heads, width, width, dtype=torch.float64)
        matrix[selected] = float(trained[lambda_metric(layer)] or 0) * difference
        changed[layer, selected] = True
        matrices.append(matrix)
    return DexWeights(torch.stack(matrices), changed)
