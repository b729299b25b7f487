"""Text, jobs and random weights for evaluating pretrained models."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from small_decoders import model_of
from small_evaluation import evaluate_as_job, write_text
from small_language_models import write_tokenizer
from small_motif import MotifConfig, MotifForCausalLM

from difftransformer.config.data import DatasetConfig
from difftransformer.config.evaluations import EvaluationConfig
from difftransformer.data.tokenizer import train_tokenizer
from difftransformer.models.language_model import HFCausalLM
from difftransformer.provenance.result import Result, read_result

DECODERS = ("llama", "qwen2", "diffllama", "motif")


def decoder(kind: str) -> HFCausalLM:
    """Random weights whose maps are far from uniform, in float64."""
    model = MotifForCausalLM(MotifConfig()) if kind == "motif" else model_of(kind)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name and "subln" not in name:
                weight.normal_(0, 0.4, generator=generator)
    return HFCausalLM(model.double().eval())


def write_documents(folder: Path) -> Path:
    """Documents in the token ids of every folder with `write_tokenizer`."""
    (folder / "ids").mkdir()
    write_tokenizer(folder / "ids")
    made = DatasetConfig.model_validate(
        {
            "sources": {"s": {"kind": "files", "globs": ["*.txt"], "license": "none"}},
            "tokenizer": {"kind": "huggingface", "name": str(folder / "ids")},
        }
    )
    documents = np.random.default_rng(0).integers(0, 300, size=(6, 40)).tolist()
    return write_text(
        folder / "text", documents, 300, lambda to: train_tokenizer(made, to / "tokenizer.json")
    )


def measured(output: Path, text: Path | None, config: dict[str, Any], **what: Any) -> Result:
    """The result of a suite on a run's folder (`model`), or on one of transformers."""
    pretrained = what.pop("pretrained", None)
    if pretrained is not None:
        pretrained = {"name": str(pretrained)} | what.pop("options", {})
    slice = EvaluationConfig.model_validate(
        {
            "scale": "unit",
            "run": "diff",
            "suite": "maps",
            "config": config,
            "pretrained": pretrained,
        }
    )
    evaluate_as_job(slice, output, dataset=text, **what)
    return read_result(output)
