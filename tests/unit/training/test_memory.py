"""The estimate of a job's memory against what it really took, and what a refusal says."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_training import make_slice

from difftransformer.config.scale import MachineConfig
from difftransformer.errors import UserError
from difftransformer.planning.card import Card
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
        "vocab_size": 512, "batch_size": 16, "seq_len": 256, "recompute": "layer",
        "d_model": 256, "num_layers": 8, "ffn_dim": 768,
    },
    "selected": {
        "vocab_size": 512, "batch_size": 16, "seq_len": 256, "recompute": "selective",
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
    found = json.loads(ended.stdout)
    assert found["measured"] > 200e6
    assert abs(found["estimated"] / found["measured"] - 1) < 0.25, found


def test_on_a_gpu_logits_leave_their_room_to_the_backward_pass() -> None:
    layer, of_logits = 1e6, memory.logit_bytes(make_slice(), "cuda")

    def both(device: str, layer: float = layer, **training: Any) -> tuple[float, float]:
        return memory.activations_and_logits(make_slice(**training), layer, device)

    kept, at_work = 16 * 2 * layer, 16 * 1.4 * layer  # sequences and layers of a micro-batch
    assert both("cpu", compile=True) == (kept + at_work, memory.logit_bytes(make_slice(), "cpu"))
    assert both("cuda") == (kept + at_work, 0.0)
    assert both("cuda", compile=True)[0] == pytest.approx(0.9 * (kept + at_work))
    little = 1.0
    assert both("cuda", little) == pytest.approx((16 * 3.4, of_logits - 16 * 1.4))
    inputs = 4 * 16 * 32 * 16 * 2  # positions, d_model, sequences, layers
    assert both("cuda", recompute="layer")[0] == pytest.approx(inputs + 16 * 2.4 * layer)


def test_a_mask_of_documents_is_part_of_the_estimate() -> None:
    machine = MachineConfig(card="any", memory_gib=80, peak_tflops=100, mfu=0.4)
    slices = [
        make_slice(seq_len=32, backend="sdpa", document_mask=masked) for masked in (False, True)
    ]
    here = [memory.estimate_memory(slice, torch.device("cpu")) for slice in slices]
    for plain, masked in (here, map(Card(machine).estimate, slices)):
        added = masked.activations - plain.activations
        assert added >= 16 * 2 * 4 * 32**2  # of each sequence and layer: what SDPA adds to logits
        assert masked.states == plain.states


def test_processes_share_the_states_but_not_what_they_compute() -> None:
    def estimate(world: int) -> memory.MemoryEstimate:
        slice = make_slice(world=world, micro_batch_size=1)
        deep = replace(slice.model, num_layers=32)
        return memory.estimate_memory(slice.model_copy(update={"model": deep}), torch.device("cpu"))

    alone, *shared = map(estimate, (1, 2, 4, 16))
    states = [one.states for one in (alone, *shared)]
    assert states == sorted(states, reverse=True) and states[-1] < states[0] / 2
    assert {one.activations for one in shared} == {alone.activations}


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
    found = json.loads(ended.stdout)
    assert found["measured"] > 250e6
    assert abs(found["estimated"] / found["measured"] - 1) < 0.15, found


def test_memory_is_given_back_where_its_gaps_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate = memory.MemoryEstimate(100.0, 0.0, 0.0, 0.0)
    given_back: list[bool] = []
    monkeypatch.setattr(memory, "estimate_adaptation", lambda *asked: estimate)
    monkeypatch.setattr(memory, "return_freed_memory", lambda: given_back.append(True))
    slice, cpu = make_slice(), torch.device("cpu")
    for free, expected in ((1000.0, []), (150.0, [True])):
        monkeypatch.setattr(memory, "available_bytes", lambda device, free=free: free)
        memory.require_memory_to_adapt(slice, None, None, cpu)  # type: ignore[arg-type]
        assert given_back == expected
    monkeypatch.setattr(memory, "available_bytes", lambda device: 99.0)
    with pytest.raises(UserError, match=r"adapting needs about .* are free: lower"):
        memory.require_memory_to_adapt(slice, None, None, cpu)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seq_len": 32, "batch_size": 64}, "lower training.micro_batch_size (64;"),
        ({"seq_len": 4, "batch_size": 1}, "lower model.d_model (32), model.num_layers (2)"),
    ],
)
def test_a_job_too_large_is_refused_before_it_starts(
    changes: dict[str, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice, cpu = make_slice(**changes), torch.device("cpu")
    memory.require_memory(slice, cpu)
    estimate = memory.estimate_memory(slice, cpu)
    monkeypatch.setattr(memory, "available_bytes", lambda device: estimate.peak - 1)
    with pytest.raises(UserError) as caught:
        memory.require_memory(slice, cpu)
    assert said in str(caught.value)
    assert "GiB are free" in str(caught.value)
    monkeypatch.setenv(memory.VARIABLE, "off")
    memory.require_memory(slice, cpu)


def test_running_out_all_the_same_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource\n"
        "from difftransformer.provenance.reporting import reporting\n"
        "with reporting():\n"
        "    import torch\n"
        "    limit = 16 * 2**30\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "    torch.empty(2**35)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "error: out of memory" in ended.stderr and "lower batch sizes" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_is_free_is_a_sane_number() -> None:
    assert 2**20 < memory.available_bytes(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("own", "root", "names"),
    [
        ("0::/slurm/job_1/step_0", "", ("memory.max", "memory.current")),
        ("4:cpu,memory:/slurm/job_1/step_0", "memory",
         ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)  # fmt: skip
def test_the_limit_of_a_job_counts_at_whatever_level_it_lies(
    own: str, root: str, names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text(f"1:name=systemd:/elsewhere\n{own}\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path / "mounted")
    monkeypatch.setattr(memory, "_OWN_CGROUPS", tmp_path / "own")
    step = tmp_path / "mounted" / root / "slurm" / "job_1" / "step_0"
    step.mkdir(parents=True)
    for folder, most in ((step, "max"), (step.parent, "5000"), (step.parents[2], "9000")):
        for name, text in zip(
            (*names, "memory.stat"), (most, "1000", "inactive_file 200"), strict=True
        ):
            (folder / name).write_text(f"{text}\n")
    assert memory.available_bytes(torch.device("cpu")) == 5000 - 1000 + 200
