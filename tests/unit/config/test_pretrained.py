"""Pretrained models that cannot be adapted give a one-line error before any job."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_decoders import model_of

from difftransformer.config.pretrained import sizes
from difftransformer.config.run import PretrainedModel
from difftransformer.errors import UserError


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("qwen2", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "are quantized"),
        (
            "qwen2",
            {"architectures": ["Qwen2ForTokenClassification"]},
            "is a Qwen2ForTokenClassification: name a model",
        ),
        ("qwen2", {"architectures": None}, "names no architecture"),
        ("qwen2", {"model_type": "nothing_known"}, "cannot be loaded"),
        ("qwen2", {"model_type": "t5", "architectures": ["T5Model"]}, "has an encoder"),
        ("gpt2", {}, "is a GPT2LMHeadModel: name a model"),
        ("gpt_neox", {}, "its config has no rms_norm_eps"),
        ("diffllama", {}, "is a DiffLlamaForCausalLM, whose heads subtract maps already"),
        ("qwen2", {"model_type": "difftransformer"}, "is a model of this package: a run continues"),
    ],
)
def test_a_model_that_cannot_be_adapted_is_one_line_before_any_job(
    tmp_path: Path, kind: str, settings: dict[str, Any], message: str
) -> None:
    model_of(kind).save_pretrained(tmp_path / "base")
    path = tmp_path / "base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    with pytest.raises(UserError, match=message) as refusal:
        sizes(PretrainedModel(name=str(tmp_path / "base")))
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(str(tmp_path / "base"))


def test_a_base_without_attention_is_one_line(tmp_path: Path) -> None:
    from transformers import MambaConfig

    MambaConfig(architectures=["MambaForCausalLM"]).save_pretrained(tmp_path / "base")
    with pytest.raises(UserError, match="its config has no num_attention_heads") as refusal:
        sizes(PretrainedModel(name=str(tmp_path / "base")))
    assert "\n" not in str(refusal.value)


def test_an_adapter_without_its_base_is_one_line(tmp_path: Path) -> None:
    from difftransformer.convert.dex import DexConfig

    DexConfig(heads="all").save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match="it is an adapter alone: name the model") as refusal:
        sizes(PretrainedModel(name=str(tmp_path / "adapter")))
    assert "\n" not in str(refusal.value)
