"""flash-attn (https://github.com/Dao-AILab/flash-attention), for NVIDIA GPUs in half precision.

Shapes as in `models.kernels.Kernel`. Imported only when the backend was asked for and is installed.
"""

import torch
from flash_attn import flash_attn_func
from torch import Tensor

from difftransformer.errors import BackendError


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None) -> Tensor:
    """See `Kernel.attention`."""
    if mask is not None:
        raise BackendError("backend flash_attn takes no padding mask; use sdpa for padded batches")
    if not q.is_cuda or q.dtype not in (torch.bfloat16, torch.float16):
        raise BackendError(
            f"backend flash_attn computes in half precision on CUDA, got {q.dtype} on "
            f"{q.device.type}; set precision: bf16 and device: cuda, or backend: sdpa"
        )
    out: Tensor = flash_attn_func(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        softmax_scale=scale,
        causal=True,
    )
    return out


def differential_attention(
    q: Tensor, k: Tensor, v: Tensor, lam: Tensor, *, scale: float, mask: Tensor | None
) -> Tensor:
    """See `Kernel.differential_attention`; flash-attn wants a value as wide as the key."""
    B, T, H, _, d = q.shape
    side = torch.eye(2, dtype=q.dtype, device=q.device).unsqueeze(-1)
    padded = (q.unsqueeze(-2) * side).view(B, T, 2 * H, 2 * d)
    both = attention(padded.transpose(1, 2), k, v, scale=scale, mask=mask)
    first, second = both.view(B, T, H, 2, 2 * d).unbind(dim=3)
    return first - lam.to(second.dtype) * second
