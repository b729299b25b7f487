"""The probe of memory runs what the run will run, in its precision."""

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from difftransformer.models.config import ModelConfig
from difftransformer.models.kernels import eager, flash
from difftransformer.models.memory import saved_bytes_per_layer, working_bytes

CPU = torch.device("cpu")
WIDE = ModelConfig(
    vocab_size=32, d_model=256, num_layers=4, ffn_dim=1024, max_positions=64,
    attention={"variant": "softmax", "head_dim": 64},
)  # fmt: skip


def test_half_precision_keeps_less_and_counts_weights_for_no_sequence() -> None:
    full, half = (
        saved_bytes_per_layer(WIDE, "sdpa", 8, CPU, precision) for precision in ("fp32", "bf16")
    )
    weights = 2 * (4 * 256**2 + 3 * 256 * 1024)
    assert 0.4 * full < half < 0.9 * full < weights


def test_a_mask_of_documents_is_counted() -> None:
    plain, masked = (
        saved_bytes_per_layer(WIDE, "sdpa", 64, CPU, masked=masked) for masked in (False, True)
    )
    assert masked - plain == 4 * 64**2  # SDPA keeps what it adds to the logits


def test_the_probe_calls_a_backend_in_the_precision_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []

    def attention(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Tensor:
        seen.append(q.dtype)
        return eager.attention(q, k, v, **given)

    monkeypatch.setattr(flash, "attention", attention)
    assert saved_bytes_per_layer(WIDE, "flash_attn", 8, CPU, "bf16") > 0
    assert working_bytes(WIDE, "flash_attn", 8, 8, CPU, "bf16") > 0
    assert set(seen) == {torch.bfloat16}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux: /proc")
def test_an_estimate_leaves_autograd_without_threads() -> None:
    """No process that is forked from one with such threads can train."""
    code = f"""
import os, torch
from difftransformer.models.config import ModelConfig
from difftransformer.models.memory import imagined_bytes_per_layer, selected_bytes_per_layer
simulate = torch._C._ensureCUDADeviceGuardSet  # a CPU build of torch calls it without effect
torch._C._ensureCUDADeviceGuardSet = lambda: (print("GPUs are simulated"), simulate())
for estimate in (imagined_bytes_per_layer, selected_bytes_per_layer):
    estimate(ModelConfig(**{asdict(WIDE)!r}), 64, "fp32")
torch.ones(2, requires_grad=True).sum().backward()
names = [open(f"/proc/self/task/{{one}}/comm").read() for one in os.listdir("/proc/self/task")]
print(sum("autograd" in name for name in names))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "0"
