"""Training on packed text whose attention stays within documents, by the real trainer."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tiny_training import VOCAB, Train, column, make_run_config, write_dataset
from torch import Tensor

from difftransformer.config.run import RunConfig
from difftransformer.convert.attention_hooks import capture_lambdas, lambda_means
from difftransformer.convert.checkpoint import load_model
from difftransformer.data.loader import BatchLoader
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.models.loss import token_losses
from difftransformer.models.transformer import Transformer
from difftransformer.training.validation import validation_windows

END = 0  # of the text fixture
SHORT = {"steps": 1, "warmup_steps": 0, "log_every": 1, "seq_len": 32, "batch_size": 8}


@torch.no_grad()
def loss_by_document(model: Transformer, windows: Tensor) -> float:
    """Mean loss of the targets of windows, each document by itself."""
    losses = []
    for window in windows:
        ends = (window[:-1] == END).nonzero().flatten().tolist()
        cuts = sorted({0, *(end + 1 for end in ends), len(window) - 1})
        for start, stop in pairwise(cuts):
            hidden = model.hidden_states(window[None, start:stop])[0]
            targets = window[start + 1 : stop + 1]
            losses.append(token_losses(hidden, model.output_weight, targets, 1024))
    return float(torch.cat(losses).mean())


def first_batch(text: Path, run_config: RunConfig) -> Tensor:
    config = run_config.training
    batch = BatchLoader(
        PackedDataset.open(text), "train", batch_size=config.batch_size, seq_len=32, seed=0
    ).next_batch()
    assert (batch[:, :-1] == END).any(dim=1).sum() > 2  # windows of several documents
    return batch


@pytest.mark.parametrize("activation_checkpointing", ["none", "layer"])
def test_training_and_validation_see_each_document_by_itself(
    train: Train, text: Path, activation_checkpointing: str
) -> None:
    run_config = make_run_config(
        "diff_v2", **SHORT, document_mask=True, activation_checkpointing=activation_checkpointing
    )
    folder = train(run_config)
    start = Transformer.build(run_config.model, "sdpa", seed=0)
    wanted = loss_by_document(start, first_batch(text, run_config))
    assert column(folder, "loss") == [pytest.approx(wanted, rel=1e-5)]
    trained = load_model(folder / "out")
    windows = [*validation_windows(PackedDataset.open(text), run_config.training)]
    wanted = loss_by_document(trained, torch.cat(windows))
    assert column(folder, "validation_loss") == [pytest.approx(wanted, rel=1e-5)]
    result = json.loads((folder / "out" / "training.json").read_text())
    assert result["settings"]["training"]["document_mask"] is True
    with torch.no_grad(), capture_lambdas(trained) as watched:
        for batch in windows:
            closing = (batch[:, :-1] == END).long()
            trained.hidden_states(batch[:, :-1], segment_ids=closing.cumsum(1) - closing)
    for name, value in lambda_means(watched).items():
        assert result["metrics"][name] == pytest.approx(value, rel=1e-6)


def test_without_document_mask_loss_and_settings_are_unchanged(train: Train, text: Path) -> None:
    run_config = make_run_config(**SHORT)
    assert "document_mask" not in run_config.model_dump(mode="json")["training"]
    assert "document_mask" not in run_config.model_dump_json()
    folder = train(run_config)
    start, batch = (
        Transformer.build(run_config.model, "sdpa", seed=0),
        first_batch(text, run_config),
    )
    with torch.no_grad():
        hidden = start.hidden_states(batch[:, :-1]).flatten(0, 1)
        expected = token_losses(hidden, start.output_weight, batch[:, 1:].flatten(), 1024).mean()
    assert column(folder, "loss") == [pytest.approx(float(expected), rel=1e-5)]
    assert loss_by_document(start, batch) != pytest.approx(float(expected), rel=1e-4)


def test_document_mask_is_rejected_where_unsupported(train: Train, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="document_mask and backend flash_attn exclude"):
        make_run_config(document_mask=True, backend="flash_attn", precision="bf16")
    adapted = make_run_config(document_mask=True).model_dump() | {"adapt": {"method": "full"}}
    with pytest.raises(ValidationError, match="document_mask is for models that are pre-trained"):
        RunConfig.model_validate(adapted)
    tokens = np.arange(500) % VOCAB
    endless = write_dataset(
        tmp_path / "endless", {"train": tokens, "validation": tokens}, vocab_size=VOCAB
    )
    with pytest.raises(ConfigError, match=r"no token ends the documents of .*endless: leave"):
        train(make_run_config(document_mask=True), dataset=endless)
