"""Estimated against measured memory of an evaluation, and the errors above the limit."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_evaluation import RECALL, model_config, save_run, write_recall, write_text

from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.config.run import PretrainedModel
from difftransformer.data.ngrams import write_keys
from difftransformer.errors import UserError
from difftransformer.evaluation import memory
from difftransformer.evaluation.context import PretrainedContext
from difftransformer.evaluation.harness import wrap_for_lm_eval
from difftransformer.machine import memory as limits

SIZES: dict[str, dict[str, Any]] = {
    "logits": {
        "suite": {"kind": "validation_slices", "seq_len": 128, "batch_size": 8},
        "vocab_size": 65536, "max_positions": 128, "d_model": 64, "num_layers": 2, "ffn_dim": 192,
        "tie_embeddings": True,
    },
    "maps": {
        "suite": {"kind": "nll_by_position", "length": 512, "batch_size": 8, "backend": "eager"},
        "vocab_size": 512, "max_positions": 512, "d_model": 256, "num_layers": 1, "ffn_dim": 768,
    },
    "rows of maps": {
        "suite": {
            "kind": "attention_maps", "seq_len": 1024, "max_tokens": 1024, "batch_size": 1,
            "block": 512,
        },
        "vocab_size": 512, "max_positions": 1024, "d_model": 256, "num_layers": 2, "ffn_dim": 512,
    },
    "sinks": {
        "suite": {"kind": "sinks", "seq_len": 1024, "batch_size": 2},
        "vocab_size": 512, "max_positions": 1024, "d_model": 256, "num_layers": 2, "ffn_dim": 512,
    },
    "head outputs": {
        "suite": {"kind": "context_rms", "seq_len": 1024, "batch_size": 2},
        "vocab_size": 512, "max_positions": 1024, "d_model": 256, "num_layers": 2, "ffn_dim": 512,
    },
    "second derivatives": {
        "suite": {
            "kind": "curvature", "seq_len": 128, "sequences": 8, "batches": 1, "steps": 8,
            "backend": "eager",
        },
        "vocab_size": 2048, "max_positions": 128, "d_model": 192, "num_layers": 3, "ffn_dim": 512,
    },
    "cache": {
        "suite": {"kind": "hallucination", "format": "recall", "needles": [1], "samples": 1},
        "vocab_size": 512, "max_positions": 2048, "d_model": 256, "num_layers": 48, "ffn_dim": 256,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "size",
    ["logits", *(pytest.param(size, marks=pytest.mark.slow) for size in SIZES if size != "logits")],
)
def test_the_estimate_is_near_the_measured_peak(size: str, tmp_path: Path) -> None:
    prepare(tmp_path, **SIZES[size])
    rooms = [Path(__file__).parent, Path(__file__).parents[1] / "training"]
    path = os.pathsep.join(map(str, [*rooms, *sys.path]))
    ended = subprocess.run(
        [sys.executable, rooms[0] / "measured_evaluation.py", tmp_path],
        capture_output=True, text=True, check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )  # fmt: skip
    peaks = json.loads(ended.stdout)
    assert peaks["measured"] > 100e6
    assert 1 <= peaks["estimated"] / peaks["measured"] < 1.4, peaks


def prepare(
    folder: Path, suite: dict[str, Any], vocab_size: int, max_positions: int, **model: Any
) -> None:
    """A dataset, a model on it, and the slice of an evaluation."""
    data = folder / "data"
    if suite["kind"] == "hallucination":
        sizes = {"row_length": max_positions - 7, "num_fillers": vocab_size - 16}
        write_recall(data, RECALL.model_copy(update=sizes))
    else:
        documents = np.random.default_rng(0).integers(0, vocab_size, (9, max_positions + 1))
        write_text(data, documents.tolist(), vocab_size)
    write_keys(folder / "ngrams.npy", np.empty(0, np.uint64))
    attention = {"variant": "diff_v1", "head_dim": 32}
    save_run(
        folder / "run", vocab_size, dataset=data,
        max_positions=max_positions, attention=attention, **model,
    )  # fmt: skip
    config = {"backend": "blocked", "device": "cpu"} | suite
    slice = {"scale": "unit", "run": "diff", "suite": "measured", "config": config}
    written = EvaluationConfig.model_validate(slice).model_dump_json()
    (folder / "slice.json").write_text(written)


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        ({"kind": "sinks", "seq_len": 32}, "lower sinks.batch_size (32) or sinks.seq_len (32)"),
        ({"kind": "recall", "needles": [1]}, "lower recall.batch_size (32)"),
        (
            {"kind": "needles", "format": "text", "pairs": [[1, 1]], "lengths": [32], "chunk": 16},
            "lower needles.chunk (16) or needles.lengths (32)",
        ),
        (
            {"kind": "mathematics", "max_new_tokens": 30},
            "lower mathematics.batch_size (32) or mathematics.max_new_tokens (30)",
        ),
        ({"kind": "language_understanding"}, "lower language_understanding.batch_size (32)"),
    ],
)
def test_an_evaluation_that_exceeds_memory_is_refused(
    suite: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slice = EvaluationConfig.model_validate(
        {"scale": "unit", "run": "diff", "suite": "measured", "config": suite}
    )
    device, job = torch.device("cpu"), "the model: measuring"
    estimate = memory.estimate_evaluation(slice.config, model_config(16), "sdpa", device)
    memory.require_memory_to_evaluate(estimate, device, job)
    monkeypatch.setattr(limits, "available_bytes", lambda device: estimate.peak - 1)
    with pytest.raises(UserError) as caught:
        memory.require_memory_to_evaluate(estimate, device, job)
    assert message in str(caught.value)
    assert "the model: measuring" in str(caught.value) and "GiB are free" in str(caught.value)


def test_weights_alone_can_be_too_large() -> None:
    config = {"kind": "recall", "needles": [1]}
    slice = EvaluationConfig.model_validate(
        {"scale": "unit", "run": "diff", "suite": "measured", "config": config}
    )
    model = replace(model_config(2**24), d_model=2**17)
    device = torch.device("cpu")
    estimate = memory.estimate_evaluation(slice.config, model, "sdpa", device)
    with pytest.raises(UserError, match=r"weights.* larger machine"):
        memory.require_memory_to_evaluate(estimate, device, "the model: measuring")


def test_a_pretrained_model_that_exceeds_memory_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(4096))
    context = PretrainedContext(
        PretrainedModel(name=str(tmp_path)), torch.device("cpu"), details=tmp_path, state=tmp_path
    )
    settings = EvaluationConfig.model_validate(
        {
            "scale": "unit",
            "run": "x",
            "suite": "tasks",
            "config": {"kind": "language_understanding"},
        }
    )
    monkeypatch.setattr(limits, "available_bytes", lambda device: 4096)
    with pytest.raises(UserError, match=r"loading it needs .* smaller model"):
        wrap_for_lm_eval(settings.config, context)
    monkeypatch.setattr(limits, "available_bytes", lambda device: 8192)
    with pytest.raises(UserError, match="cannot be loaded"):
        wrap_for_lm_eval(settings.config, context)
