"""Attention maps of pretrained models with remote code, and of unsupported ones."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_pretrained
import torch
from small_decoders import model_of
from small_language_models import write_tokenizer
from small_pretrained import write_documents

from difftransformer.errors import UserError
from difftransformer.evaluations.attention_maps.settings import metric_names
from difftransformer.models.config import layer_metric
from difftransformer.provenance.result import Result

SUITE = {
    "kind": "attention_maps", "seq_len": 32, "batch_size": 2, "max_tokens": 96, "top_fraction": 0.2,
    "first_query": 14, "block": 5, "dataset": "text",
}  # fmt: skip
SOURCES = Path(__file__).parents[2] / "unit/models"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_documents(tmp_path)


def measured(output: Path, text: Path | None, **options: Any) -> Result:
    return small_pretrained.measured(output, text, SUITE | options.pop("changes", {}), **options)


def with_code(folder: Path, module: str, classes: str, **settings: Any) -> Path:
    """Save a model with random weights and the code that loads it; return the folder."""
    import small_motif
    import small_phi4flash

    source = {"small_motif": small_motif, "small_phi4flash": small_phi4flash}[module]
    torch.manual_seed(0)
    config = getattr(source, f"{classes}Config")(vocab_size=300, **settings)
    model = getattr(source, f"{classes}ForCausalLM")(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name and "subln" not in name:
                weight.normal_(0, 0.1)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    shutil.copy(SOURCES / f"{module}.py", folder)
    content = json.loads((folder / "config.json").read_text())
    content["auto_map"] = {
        "AutoConfig": f"{module}.{classes}Config",
        "AutoModelForCausalLM": f"{module}.{classes}ForCausalLM",
    }
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("module", "classes", "layers", "settings"),
    [
        ("small_motif", "Motif", [0, 1], {}),
        ("small_motif", "Motif", [0, 1], {"num_attention_heads": 10, "num_noise_heads": 2}),
        ("small_phi4flash", "Phi4Flash", [1, 3, 5, 7], {}),
    ],
)
def test_a_folder_with_remote_code(
    tmp_path: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    classes: str,
    layers: list[int],
    settings: dict[str, Any],
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    folder = with_code(tmp_path / "theirs", module, classes, **settings)
    trusted = {"trust_remote_code": True}
    metrics = measured(tmp_path / "a.json", text, pretrained=folder, options=trusted).metrics
    attending = {
        layer for layer in range(8) if metrics.get(layer_metric("distance", layer)) is not None
    }
    assert attending == {*layers} and len(metrics) == len(metric_names(max(layers) + 1))
    for name in ("spearman_all", "js_top", "entropy_maps", "negative_fraction", "below_1e4"):
        assert metrics[name] is not None and metrics[layer_metric(name, layers[-1])] is not None
    if classes == "Phi4Flash":
        assert (
            metrics[layer_metric("spearman_all", 0)]
            is metrics[layer_metric("below_1e4", 2)]
            is None
        )
        sliding, full = (metrics[layer_metric("entropy_first", layer)] for layer in (1, 5))
        assert sliding is not None and full is not None and sliding < np.log(5) < full
    with pytest.raises(UserError, match="cannot be loaded") as error:
        measured(tmp_path / "b.json", text, pretrained=folder)
    assert "\n" not in str(error.value)


def folder_of(folder: Path, kind: str, **settings: Any) -> Path:
    model_of(kind, vocab_size=300, **settings).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("gpt_oss", {}, "GptOss.*s_aux"),
        ("llama", {"seq_len": 128, "max_tokens": 128}, "seq_len 128.*max_positions 64"),
    ],
)
def test_unsupported_models_fail_with_a_one_line_error(
    tmp_path: Path, text: Path, kind: str, changes: dict[str, Any], message: str
) -> None:
    more = {"num_local_experts": 2, "num_experts_per_tok": 1} if kind == "gpt_oss" else {}
    folder = folder_of(tmp_path / "model", kind, **more)
    with pytest.raises(UserError, match=message) as error:
        measured(tmp_path / "a.json", text, pretrained=folder, changes=changes)
    assert "\n" not in str(error.value)


def test_text_must_be_tokenized_by_the_models_tokenizer(tmp_path: Path, text: Path) -> None:
    folder = folder_of(tmp_path / "model", "llama")
    with pytest.raises(UserError, match="suite maps reads text"):
        measured(tmp_path / "a.json", None, pretrained=folder)
    write_tokenizer(folder, "other words altogether")
    with pytest.raises(UserError, match="has other token ids than"):
        measured(tmp_path / "a.json", text, pretrained=folder)
