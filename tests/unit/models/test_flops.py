from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from difftransformer.config.model import ModelConfig
from difftransformer.models import matrices, normalisation
from difftransformer.models.attention.registry import variants
from difftransformer.models.sizes import forward_flops, training_flops
from difftransformer.models.transformer import Transformer

BATCH, LENGTH = 2, 12


def config(variant: str, **attention: Any) -> ModelConfig:
    heads = {"head_dim": 4, "num_heads": 4, "num_kv_heads": 2}
    return ModelConfig(
        vocab_size=40, d_model=16, num_layers=2, ffn_dim=24, max_positions=LENGTH,
        attention={"variant": variant, **heads, **attention},
    )  # fmt: skip


OWN: list[dict[str, Any]] = [
    *({"variant": name} for name in variants()),
    {"variant": "gated", "gate": "elementwise"},
    {"variant": "diff_v2", "pairing": "across_groups"},
    {"variant": "diff_v2", "lambda_form": "none"},
    {"variant": "shared_diff", "rank": 2},
    {"variant": "softmax", "num_heads_multiplier": 1.5},
]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("own", OWN, ids=lambda own: "-".join(map(str, own.values())))
def test_formulas_are_what_torch_counts(
    own: dict[str, Any], tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "_ONEDNN", False)  # torch does not count oneDNN's products,
    monkeypatch.setattr(normalisation, "by_hand", lambda x: False)  # and does our sums by products
    sizes = config(**own).model_copy(update={"tie_embeddings": tied})
    model = Transformer.build(sizes, "eager", 0)
    tokens = torch.randint(40, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        logits = model(tokens)
        forward = counter.get_total_flops()
        logits.sum().backward()
    assert forward == BATCH * LENGTH * forward_flops(sizes, LENGTH)
    assert counter.get_total_flops() == BATCH * LENGTH * training_flops(sizes, LENGTH)


def test_a_longer_context_costs_its_maps() -> None:
    """Two layers of four heads, a logit and a value of 4 each, two operations a multiply-add."""
    sizes = config("softmax")
    assert forward_flops(sizes, 20) - forward_flops(sizes, 12) == 2 * 2 * 4 * (4 + 4) * 8


def test_v1_with_half_the_heads_costs_as_much_as_a_transformer() -> None:
    shape = {"num_heads": 2, "num_kv_heads": 1}
    assert forward_flops(config("diff_v1", **shape), 8) == forward_flops(config("softmax"), 8)
