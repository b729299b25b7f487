"""The bytes that a layer is said to keep, against what autograd keeps."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from difftransformer.models.attention.registry import variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.device import autocast
from difftransformer.models.sizes import layer_activations
from difftransformer.models.transformer import Transformer

CPU = torch.device("cpu")


def config(variant: str = "diff_v1", **changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {
        "vocab_size": 64, "d_model": 256, "num_layers": 1, "ffn_dim": 768, "max_positions": 256,
        "attention": {"variant": variant, "head_dim": 32, "heads_per_kv_head": 2},
    }  # fmt: skip
    return ModelConfig(**settings | changes)


def measured_activations(
    config: ModelConfig, backend: str, length: int, precision: str, *, masked: bool = False
) -> int:
    """Bytes of the tensors that autograd keeps of two layers, less those of one."""

    def saved_bytes(layers: int, sequences: int = 1) -> int:
        model = Transformer.build(replace(config, num_layers=layers), backend, 0)
        own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        actual: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                actual[storage._cdata] = storage.nbytes()
            return tensor.detach()

        tokens = torch.zeros(sequences, length, dtype=torch.long)
        ids = {"segment_ids": tokens} if masked else {}
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with autocast(CPU, precision), hooks:
            hidden = model.hidden_states(tokens, **ids)
        del hidden
        return sum(actual.values())

    # Autocast keeps a copy of the weights, the same for any number of sequences.
    return saved_bytes(2, 2) - saved_bytes(1, 2) - (saved_bytes(2) - saved_bytes(1))


@pytest.mark.parametrize("variant", variants())
def test_estimated_activations_match_measured_ones(variant: str) -> None:
    backends = ["eager", "cpu_dispatch", "sdpa"]
    if variant in ("dint", "grouped_diff"):
        backends.remove("sdpa")  # on a CPU it writes out maps whose values are wider than keys
    for backend in backends:
        for precision, length in (("fp32", 256), ("bf16", 256), ("fp32", 64)):
            estimate = layer_activations(config(variant), backend, length, length, precision).saved
            actual = measured_activations(config(variant), backend, length, precision)
            assert 0.85 < estimate / actual < 1.3, (backend, precision, length)


@pytest.mark.parametrize(("changed", "masked"), [({"residual_in_fp32": False}, False), ({}, True)])
def test_residual_precision_and_document_masks_count(changed: dict[str, Any], masked: bool) -> None:
    def added(count_bytes: Any) -> float:
        return float(count_bytes(config(**changed), masked) - count_bytes(config(), False))

    estimate = added(
        lambda cfg, masked: layer_activations(cfg, "sdpa", 64, 64, "bf16", masked=masked).saved
    )
    actual = added(lambda cfg, masked: measured_activations(cfg, "sdpa", 64, "bf16", masked=masked))
    assert estimate == (4 * 64**2 if masked else -2 * 64 * 256 * 2)
    assert actual / estimate == pytest.approx(1, abs=0.5)
