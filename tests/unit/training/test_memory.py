"""Estimated against measured peak memory of a training, and the error of a job too large."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_training import make_run_config

from difftransformer.config.resolve import ConfigResolver
from difftransformer.errors import UserError
from difftransformer.machine import memory as machine
from difftransformer.training import memory

METHODS = ("full", "dex", "kvo", "lora", "pissa", "galore", "apollo")
SIZES = {
    "states": {
        "vocab_size": 512, "batch_size": 1, "seq_len": 64,
        "d_model": 512, "num_layers": 5, "ffn_dim": 1536,
    },
    "checkpoints": {
        "vocab_size": 512, "batch_size": 1, "seq_len": 64, "checkpoint_every": 1,
        "d_model": 512, "num_layers": 5, "ffn_dim": 1536,
    },
    "activations": {
        "vocab_size": 512, "batch_size": 8, "seq_len": 256,
        "d_model": 256, "num_layers": 4, "ffn_dim": 768,
    },
    "recomputed": {
        "vocab_size": 512, "batch_size": 16, "seq_len": 256, "activation_checkpointing": "layer",
        "d_model": 256, "num_layers": 8, "ffn_dim": 768,
    },
    "selected": {
        "vocab_size": 512, "batch_size": 16, "seq_len": 256,
        "activation_checkpointing": "selective",
        "d_model": 256, "num_layers": 8, "ffn_dim": 768,
    },
    "logits": {
        "vocab_size": 32768, "batch_size": 8, "seq_len": 256,
        "d_model": 128, "num_layers": 2, "ffn_dim": 384,
    },
    "maps": {
        "vocab_size": 512, "batch_size": 2, "seq_len": 512, "backend": "eager",
        "d_model": 256, "num_layers": 4, "ffn_dim": 384,
    },
}  # fmt: skip
MORE = ("states", "logits", "recomputed", "selected", "maps")  # "checkpoints" has the states, too


@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=[pytest.mark.slow] * (size in MORE)) for size in SIZES]
)
def test_the_estimate_is_near_the_measured_peak(size: str, tmp_path: Path) -> None:
    script = Path(__file__).with_name("measured_training.py")
    ended = subprocess.run(
        [sys.executable, script, tmp_path, json.dumps(SIZES[size])],
        capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    peak = json.loads(ended.stdout)
    assert peak["measured"] > 200e6
    assert 1 <= peak["estimated"] / peak["measured"] < 1.4, peak


@pytest.mark.parametrize(
    ("run", "measured"), [("transformer", 14_991_219_712), ("diff", 16_085_646_336)]
)
def test_the_estimate_is_near_the_peak_of_an_h100(
    run: str, measured: int, repository: Path
) -> None:
    """Measured compiled in bf16, see benchmarks/gpu/records/training.jsonl."""
    run_config = ConfigResolver.load(repository / "config", {"scale": "gpu"}).run(run)
    assert 1 <= memory.estimate_memory(run_config, "cuda").peak / measured < 1.4


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_mask_of_documents_is_part_of_the_estimate(device: str) -> None:
    plain, masked = (
        memory.estimate_memory(
            make_run_config(seq_len=32, backend="sdpa", document_mask=masked), device
        )
        for masked in (False, True)
    )
    assert masked.activations - plain.activations >= 16 * 2 * 4 * 32**2  # of 16 sequences, 2 layers
    assert masked.states == plain.states


def test_processes_share_the_states_but_not_what_they_compute() -> None:
    def estimate(world_size: int) -> memory.MemoryEstimate:
        run_config = make_run_config(world_size=world_size, micro_batch_size=1)
        deep = replace(run_config.model, num_layers=32)
        return memory.estimate_memory(run_config.model_copy(update={"model": deep}), "cpu")

    alone, *shared = map(estimate, (1, 2, 4, 16))
    states = [estimated.states for estimated in (alone, *shared)]
    assert states == sorted(states, reverse=True) and states[-1] < states[0] / 2
    assert {estimated.activations for estimated in shared} == {alone.activations}


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("llama", "dex"),
        *(
            pytest.param(kind, method, marks=pytest.mark.slow)
            for kind, method in (
                *(("llama", method) for method in METHODS if method != "dex"),
                *(("qwen2", "dex"), ("mistral", "lora")),
            )
        ),
    ],
)
def test_the_estimate_of_an_adaptation_is_near_the_measured_peak(kind: str, method: str) -> None:
    script = Path(__file__).with_name("measured_adaptation.py")
    ended = subprocess.run(
        [sys.executable, script, kind, method, "256", "4", "8", "512"],
        capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    peak = json.loads(ended.stdout)
    assert peak["measured"] > 250e6
    assert 1 <= peak["estimated"] / peak["measured"] < 1.4, peak


def test_freed_memory_is_returned_when_memory_is_tight(monkeypatch: pytest.MonkeyPatch) -> None:
    returned: list[bool] = []
    monkeypatch.setattr(memory, "return_freed_memory", lambda: returned.append(True))
    run_config, cpu = make_run_config(), torch.device("cpu")
    run_config = run_config.model_copy(update={"adapt": {"method": "full"}})
    peak = memory.estimate_memory(run_config, "cpu").peak
    for free, expected in ((3 * peak, []), (1.5 * peak, [True])):
        monkeypatch.setattr(memory, "available_bytes", lambda device, free=free: free)
        memory.require_memory(run_config, cpu)
        assert returned == expected
    monkeypatch.setattr(machine, "available_bytes", lambda device: 0.9 * peak)
    with pytest.raises(UserError, match=r"adapting needs about .* are free: lower"):
        memory.require_memory(run_config, cpu)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq_len": 32, "batch_size": 64}, "lower training.micro_batch_size (64;"),
        ({"seq_len": 4, "batch_size": 1}, "lower model.d_model (32), model.num_layers (2)"),
    ],
)
def test_job_that_does_not_fit_in_memory_is_rejected(
    changes: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_config, cpu = make_run_config(**changes), torch.device("cpu")
    memory.require_memory(run_config, cpu)
    estimate = memory.estimate_memory(run_config, "cpu")
    monkeypatch.setattr(machine, "available_bytes", lambda device: estimate.peak - 1)
    with pytest.raises(UserError) as caught:
        memory.require_memory(run_config, cpu)
    assert message in str(caught.value)
    assert "GiB are free" in str(caught.value)
    monkeypatch.setenv(machine.VARIABLE, "off")
    memory.require_memory(run_config, cpu)
