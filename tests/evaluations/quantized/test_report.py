"""Figure 8 as a table: notes on score and granularity, scores in %."""

import json
from pathlib import Path
from statistics import fmean

import pytest
from fake_configs import resolved_artifact
from fake_results import FakeResults

from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import build_table, make_table


def test_notes_name_score_and_granularity(fake: FakeResults, tmp_path: Path) -> None:
    build_table(resolved_artifact("figure8"), fake.results, tmp_path / "figure8")
    text = (tmp_path / "figure8.md").read_text()
    for note in (
        "Score: retrieval accuracy, N = 4, %; guessing gives 25.0. One scale for the logits of one "
        "sequence and softmax map.",
        "Score: validation loss, nats. One scale for one position of a head.",
        "The paper's score, HellaSwag, is near chance",
    ):
        assert note in text, note


def test_accuracies_are_in_percent_as_published_and_losses_are_not(
    fake: FakeResults, tmp_path: Path
) -> None:
    artifact = resolved_artifact("figure8")
    table = make_table(artifact, load_results(fake.results, "tiny"))
    shares = [
        json.loads(path.read_text())["metrics"]["score_attention_logits_b4"]
        for path in fake.results
        if "/quantized_accuracy/recall_diff/" in str(path)
    ]
    accuracy = table.find("recall_diff", "quantized_accuracy_attention_logits_b4")
    assert accuracy is not None and accuracy.value == pytest.approx(100 * fmean(shares))
    loss = table.find("diff", "quantized_loss_attention_logits_b16")
    assert loss is not None and loss.value is not None and 3 < loss.value < 5
    assert artifact.paper is not None
    assert artifact.paper.rows["recall_diff"].values[accuracy.column] == 58.8
