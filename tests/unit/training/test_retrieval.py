"""Training on recall data: probes, the end of a run, and the weight of answers."""

import json
from pathlib import Path

import pytest
import torch
from tiny_training import RECALL, Train, column, history, make_run_config

from difftransformer.data.loader import BatchLoader
from difftransformer.data.packed import PackedDataset
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.result import read_result


def test_recall_records_accuracy_and_the_step_of_learning(train: Train, recall: Path) -> None:
    probe = {
        "needles": [1, 2],
        "queries": 2,
        "samples": 16,
        "every": 4,
        "learned_needles": 2,
        "learned_threshold": 1e-9,
    }
    folder = train(make_run_config(seq_len=24, probe=probe, log_every=3), dataset=recall)
    rows = history(folder)
    assert [row["step"] for row in rows] == ["3", "4", "6", "8"]
    probed = [row for row in rows if row["accuracy_n1"]]
    assert [row["step"] for row in probed] == ["4", "8"]
    assert all(0 <= float(row["accuracy_n2"]) <= 1 for row in probed)
    learned_at = next((int(row["step"]) for row in probed if float(row["accuracy_n2"]) > 0), None)
    metrics = read_result(folder / "out" / "training.json").metrics
    assert metrics["steps_to_learn"] == learned_at
    assert metrics["learned"] == int(learned_at is not None)
    assert metrics["accuracy_n2"] == float(probed[-1]["accuracy_n2"])


def test_a_run_ends_as_many_steps_after_learning_as_asked(train: Train, recall: Path) -> None:
    probe = {"needles": [2], "samples": 64, "every": 4, "learned_needles": 2}
    requested = {"seq_len": 24, "steps": 30, "cooldown_after_learning": 5, "log_every": 1}
    ends = {}
    for name, threshold in (("soon", 1e-9), ("never", 1.0)):
        run_config = make_run_config(probe=probe | {"learned_threshold": threshold}, **requested)
        folder = train(run_config, name, dataset=recall)
        metrics = read_result(folder / "out" / "training.json").metrics
        rates, steps = column(folder, "lr"), ends.setdefault(name, int(metrics["steps"]))
        assert len(rates) == steps and metrics["tokens"] == steps * 16 * 24
        assert rates[1:-5] == [1e-2] * (steps - 6) and rates[-1] == pytest.approx(4e-4)
        assert metrics["steps_to_learn"] == (steps - 5 if name == "soon" else None)
        heartbeat = json.loads((folder / "state" / "progress.json").read_text())
        assert heartbeat["step"] == heartbeat["steps"] == steps
    assert ends["soon"] < ends["never"] == 30


def test_recall_loss_weighs_answers_and_the_rest(train: Train, recall: Path) -> None:
    probe = {"needles": [2], "learned_needles": 2}
    settings = {"seq_len": 24, "steps": 1, "warmup_steps": 0, "probe": probe}
    (loss,) = column(train(make_run_config(**settings), "recall", dataset=recall), "loss")
    # The naive twin: whole logits of the same first batch.
    dataset = PackedDataset.open(recall)
    batch = BatchLoader(dataset, "train", batch_size=16, seq_len=24, seed=0).next_batch()
    model = Transformer.build(make_run_config(probe=probe).model, "sdpa", 0)
    logits = model.hidden_states(batch[:, :-1]) @ model.output_weight.T
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), batch[:, 1:], reduction="none"
    )
    answers = torch.tensor([RECALL.haystack_length + 2 * i for i in range(RECALL.num_queries)])
    is_answer = torch.isin(torch.arange(24), answers)
    expected = losses[:, is_answer].mean() + 0.5 * losses[:, ~is_answer].mean()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
