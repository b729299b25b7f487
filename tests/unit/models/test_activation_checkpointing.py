"""What a layer computes again in the backward pass."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import difftransformer.models.kernels.flash.flash4
import difftransformer.models.kernels.fused.operations  # noqa: F401  (both have operations)
from difftransformer.models.activation_checkpointing import SAVED_OPERATIONS
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"


class Counted(TorchDispatchMode):
    """How often each operation was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = Counter[str]()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.calls[operation._schema.name] += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("mode", "attentions"), [("layer", 2), ("selective", 1)])
def test_selective_checkpointing_does_not_repeat_matmuls_or_attention(
    mode: str, attentions: int
) -> None:
    config = ModelConfig(
        vocab_size=32, d_model=32, num_layers=1, ffn_dim=64, max_positions=16,
        attention={"variant": "softmax", "head_dim": 8},
    )  # fmt: skip
    model = Transformer.build(config, "sdpa", seed=0)
    model.activation_checkpointing = mode
    with Counted() as forward:
        out = model.hidden_states(torch.arange(16).view(1, 16))
    with Counted() as backward:
        out.sum().backward()
    assert forward.calls[ATTENTION] == 1
    assert forward.calls[ATTENTION] + backward.calls[ATTENTION] == attentions


def test_outputs_of_our_attention_operations_are_saved() -> None:
    names = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    ours = {
        name for name in names
        if name.startswith("difftransformer::") and not name.endswith("_backward")
    }  # fmt: skip
    assert {"difftransformer::fused_attention", "difftransformer::flash_attention_4"} <= ours
    assert ours <= SAVED_OPERATIONS
