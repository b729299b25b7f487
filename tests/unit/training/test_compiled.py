"""Compiled layers: one graph for all of them, all steps, and what is measured between steps."""

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from difftransformer.models.autograd import disable_custom_backward
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer
from difftransformer.training.compiled import compiled_states, measured_states

LAYERS = 10  # more than dynamo's limit of graphs for one function


def small(variant: str, backend: str) -> Transformer:
    config = ModelConfig(
        vocab_size=64,
        d_model=32,
        num_layers=LAYERS,
        ffn_dim=64,
        attention={"variant": variant, "head_dim": 8},
        max_positions=64,
    )
    return Transformer.build(config, backend, seed=0)


def gradients(model: Transformer, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [*model.parameters()], allow_unused=True))


@pytest.mark.parametrize(
    ("variant", "backend"),
    [("softmax", "sdpa"), ("diff_v1", "sdpa"), ("diff_v2", "sdpa"), ("diff_v1", "cpu_dispatch")],
)
def test_two_steps_and_a_validation_are_one_graph_without_a_break(
    variant: str, backend: str
) -> None:
    torch._dynamo.reset()
    counters.clear()
    graphs = CompileCounterWithBackend("aot_eager")
    plain, model = small(variant, backend), small(variant, backend)
    states = compiled_states(model, backend=graphs)
    batches = torch.randint(64, (3, 4, 48), generator=torch.Generator().manual_seed(0))
    first = 0
    for step, tokens in enumerate(batches):
        compiled = gradients(model, states(tokens).square().mean())
        first = first or graphs.frame_count
        assert graphs.frame_count == first, f"step {step} compiled again"
        with disable_custom_backward():
            wanted = gradients(plain, plain.hidden_states(tokens).square().mean())
        for mine, theirs in zip(compiled, wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)
    assert first <= 2, "layers differ by a number alone, which is an input of the second graph"
    with torch.no_grad():
        for rows in (4, 3, 1):  # the last batch of a validation is smaller
            result = measured_states(states, batches[0, :rows], rows=4)
            assert not result.requires_grad
            with disable_custom_backward():
                wanted_states = plain.hidden_states(batches[0, :rows])
            torch.testing.assert_close(result, wanted_states, rtol=1e-4, atol=1e-5)
    assert graphs.frame_count == first, "measuring compiled again"
    assert not counters["graph_break"]
