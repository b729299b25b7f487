"""Loss per document on any dataset with the run's tokenizer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_evaluation import VOCAB, eval_context, model_config, scorer

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.evaluations.adaptation.measure import measure
from difftransformer.evaluations.adaptation.settings import Suite
from difftransformer.models.transformer import Transformer
from difftransformer.planning.plan import Plan


def suite(**changes: int | None) -> Suite:
    defaults = {"seq_len": 16, "batch_size": 3}
    return Suite.model_validate(
        {"kind": "adaptation", "dataset": "text", "max_tokens": None} | defaults | changes
    )


def test_loss_is_the_mean_over_all_targets_with_sums_per_document(text: Path) -> None:
    data = PackedDataset.open(text)
    scored = scorer(Transformer.build(model_config(VOCAB), "sdpa", 0))
    measured = measure(suite(), eval_context(scored, data))
    dtype = np.dtype(data.manifest.dtype)
    shards = data.manifest.splits["validation"].shards
    tokens = np.concatenate([np.fromfile(text / "shards" / shard.file, dtype) for shard in shards])
    windows = (len(tokens) - 1) // 16
    rows = np.stack([tokens[i * 16 : i * 16 + 17] for i in range(windows)]).astype(np.int64)
    losses = scored.losses(torch.from_numpy(rows), 1024).numpy().reshape(-1)
    assert measured.metrics["tokens"] == len(losses)
    assert measured.metrics["loss"] == pytest.approx(losses.mean(), abs=1e-6)
    (term,) = measured.per_item["loss"].terms
    ends = data.split("validation").document_ends()
    owners = np.searchsorted(ends, 1 + np.arange(len(losses)), side="right")
    expected = [losses[owners == d].sum() for d in range(owners.max() + 1)]
    assert term.values == pytest.approx(expected, abs=1e-4)
    assert term.weights == [(owners == d).sum() for d in range(owners.max() + 1)]


def test_a_suite_reads_the_dataset_that_it_names(repository: Path, config_folder: Path) -> None:
    jobs = Plan.load(repository / "config", {"scale": "tiny"}).jobs
    manifest = "results/tiny/data/{}/manifest.json".format
    assert jobs.measured_manifest("adaptation_source", "adapted_dex") == [manifest("stdlib_text")]
    assert jobs.measured_manifest("adaptation_target", "adapted_dex") == [manifest("second_text")]
    assert jobs.measured_manifest("sinks", "adapted_dex") == [manifest("second_text")]
    datasets = config_folder / "datasets.yaml"
    datasets.write_text(
        datasets.read_text().replace("[data/second]", f"['{config_folder}/*.yaml']")
    )
    settings = {"scale": "tiny", "second_corpus": "second_files"}
    other = Plan.load(config_folder, settings).jobs
    assert other.run("adapted_dex").dataset == "second_files"
    assert other.measured_manifest("adaptation_target", "adapted_dex") == [manifest("second_files")]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [("stdlb_text", "did you mean 'stdlib_text'"), ("recall", "has other token ids than")],
)
def test_an_incompatible_dataset_gives_a_one_line_error(
    config_folder: Path, dataset: str, message: str
) -> None:
    path = config_folder / "evaluations.yaml"
    entry = "adaptation_source: {kind: adaptation, dataset: stdlib_text"
    assert entry in path.read_text()
    path.write_text(path.read_text().replace(entry, entry.replace("stdlib_text", dataset)))
    with pytest.raises(ConfigError, match=message) as refusal:
        Plan.load(config_folder, {"scale": "tiny"})
    assert "\n" not in str(refusal.value)
