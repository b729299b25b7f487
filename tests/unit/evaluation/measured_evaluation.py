"""Evaluates in a process of its own and prints the estimated and the measured peak, in bytes."""

import json
import sys
from importlib import import_module
from pathlib import Path

import torch
from measured_training import peak, resident
from small_evaluation import evaluate_as_job, model_config

from difftransformer.config.evaluations import EvaluationConfig, module_of
from difftransformer.convert.checkpoint import read_config
from difftransformer.data.packed import PackedDataset
from difftransformer.evaluation.memory import estimate_evaluation
from difftransformer.models.transformer import Transformer


def main(folder: Path) -> None:
    slice = EvaluationConfig.model_validate_json((folder / "slice.json").read_bytes())
    suite, dataset = slice.config, PackedDataset.open(folder / "data")
    import_module(module_of(suite.kind, "measure"))
    device = torch.device("cpu")
    small = Transformer.build(model_config(16), suite.backend, 0)
    small(torch.zeros(1, 8, dtype=torch.long))  # loads what computes
    before = resident()
    estimated = estimate_evaluation(
        suite, read_config(folder / "run"), suite.backend, device,
        dataset.manifest.row_length,
    )  # fmt: skip
    evaluate_as_job(
        slice, folder / "result.json", model=folder / "run", dataset=dataset.folder,
        ngrams=folder / "ngrams.npy",
    )  # fmt: skip
    print(json.dumps({"estimated": estimated.peak, "measured": peak() - before} | vars(estimated)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
