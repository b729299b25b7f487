"""The models that whole steps are measured with: those of scale gpu, 135M parameters."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from runs import Setting

ROWS = {
    "transformer": "transformer",
    "diff_v1": "diff",
    "diff_v2": "diff_v2",
    "dint": "dint",
    "gpt_oss_sink": "gpt_oss_sink",
    "softmax_off_by_one": "softmax_off_by_one",
}
"""Rows by their runs."""
CONFIG = Path(__file__).parents[2] / "config"
LOSS_CHUNK = 8192


def config(setting: Setting, row: str, T: int) -> Any:
    """A row's model for T positions; on a CPU a layer of that of scale smoke."""
    scale = setting.sized("gpu", "smoke")
    changes = {"max_positions": T} | setting.sized({}, {"num_layers": 1})
    return replace(resolver(scale).run(ROWS[row]).model, **changes)


@cache
def resolver(scale: str) -> Any:
    """All runs of a scale."""
    from difftransformer.config.resolve import ConfigResolver

    return ConfigResolver.load(CONFIG, {"scale": scale})


def build(setting: Setting, row: str, backend: str, T: int) -> Any:
    """A row's model with a backend."""
    from difftransformer.models.transformer import Transformer

    return Transformer.build(config(setting, row, T), backend, seed=0).to(setting.device)


def backends(setting: Setting, row: str) -> list[str]:
    """Backends that can run here; flash-attn is none for rows that want the log-sum-exp."""
    from difftransformer.errors import BackendError
    from difftransformer.models.kernels import choose_backend

    found = []
    for name in ("sdpa", "fused", "flash_attn"):
        try:
            choose_backend(name, setting.device, "bf16")
        except BackendError:
            continue
        if name != "flash_attn" or row not in ("gpt_oss_sink", "softmax_off_by_one"):
            found.append(name)
    return found


def precision(setting: Setting) -> str:
    """bf16 on a card; Triton's interpreter has no products of it."""
    return str(setting.sized("bf16", "fp32"))


def tokens(setting: Setting, T: int, per_step: int) -> Any:
    """Random tokens [B, T + 1], about ``per_step`` of them."""
    import torch

    B = max(1, per_step // T) if not setting.tiny else 1
    generator = torch.Generator().manual_seed(0)
    vocab_size = config(setting, "transformer", T).vocab_size
    return torch.randint(vocab_size, (B, T + 1), generator=generator).to(setting.device)


def training_step(setting: Setting, model: Any, batch: Any, *, compiled: bool) -> Callable[[], Any]:
    """Forward, loss, backward, clipping and AdamW, as the trainer has them."""
    import torch

    from difftransformer.models.device import autocast
    from difftransformer.models.loss import chunked_cross_entropy
    from difftransformer.training.compiled import compiled_states

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=True)
    hidden_states = compiled_states(model) if compiled else model.hidden_states
    device, targets = torch.device(setting.device), batch[:, 1:].flatten()
    fused_loss = compiled and device.type == "cuda"

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with autocast(device, precision(setting)):
            hidden = hidden_states(batch[:, :-1]).flatten(0, 1)
            loss = chunked_cross_entropy(
                hidden, model.output_weight, targets, LOSS_CHUNK, compiled=fused_loss
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def share_of_peak(setting: Setting, model: Any, T: int, tokens_per_second: float) -> float | None:
    """Model FLOPs of training over the card's peak, causal pairs counted as causal."""
    import torch

    from difftransformer.machine.gpus import bf16_peak
    from difftransformer.models.sizes import training_flops

    peak = None if setting.device == "cpu" else bf16_peak(torch.cuda.get_device_name())
    if peak is None:
        return None
    return tokens_per_second * training_flops(model, T, causal=True) / peak
