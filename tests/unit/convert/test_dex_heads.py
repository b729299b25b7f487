"""Head selection of Dex: entropy and importance against reference implementations."""

from typing import Any

import pytest
import torch
from small_decoders import HEADS, KINDS, LAYERS, WIDTH, model_of
from torch import Tensor

from difftransformer.convert.dex import select_heads
from difftransformer.convert.dex.heads import head_entropy, head_importance
from difftransformer.errors import ConfigError


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 48, (3, 11), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_is_that_of_the_weights_transformers_returns(kind: str) -> None:
    tokens = torch.randint(0, 48, (3, 75), generator=torch.Generator().manual_seed(1))
    model = model_of(kind)
    before = model.config._attn_implementation
    actual = head_entropy(model, tokens.split(2))
    assert model.config._attn_implementation == before
    model.set_attn_implementation("eager")
    maps = model(tokens, output_attentions=True).attentions
    slow = torch.stack(
        [-(a.double() * a.double().clamp_min(1e-300).log()).sum(-1).mean((0, 2)) for a in maps]
    )
    torch.testing.assert_close(actual, slow, atol=1e-7, rtol=0)


def test_importance_is_the_gradient_of_a_head_gate(tokens: Tensor) -> None:
    """A gate's slope is the inner product of the head's output with the loss's slope in it."""
    model = model_of()
    expected = torch.zeros(LAYERS, HEADS)
    for sequence in tokens:
        outputs: list[Tensor] = []

        def keep(module: Any, inputs: tuple[Tensor], into: list[Tensor] = outputs) -> None:
            inputs[0].retain_grad()
            into.append(inputs[0])

        handles = [
            layer.self_attn.o_proj.register_forward_pre_hook(keep) for layer in model.model.layers
        ]
        logits = model(sequence[None]).logits[0, :-1].log_softmax(-1)
        (-logits.gather(-1, sequence[1:, None]).mean()).backward()
        for handle in handles:
            handle.remove()
        for layer, output in enumerate(outputs):
            assert output.grad is not None
            products = (output * output.grad).view(-1, HEADS, WIDTH).sum((0, 2))
            expected[layer] += products.detach().square() / len(tokens)
    actual = head_importance(model, tokens.split(2))
    torch.testing.assert_close(actual.float(), expected, atol=0, rtol=1e-4)


def test_heads_are_selected_from_the_requested_end(tokens: Tensor) -> None:
    model = model_of()
    entropy, importance = head_entropy(model, [tokens]), head_importance(model, [tokens])
    for layer in range(LAYERS):
        ranks = entropy[layer].argsort().tolist()
        chosen = {
            by: select_heads(model, [tokens], by, 0.5)[str(layer)]
            for by in ("entropy", "low_entropy", "importance")
        }
        assert chosen["entropy"] == sorted(ranks[2:])
        assert chosen["low_entropy"] == sorted(ranks[:2])
        assert chosen["importance"] == sorted(importance[layer].argsort()[:2].tolist())
    selected = select_heads(model, [tokens], share=0.01)
    assert all(len(heads) == 1 for heads in selected.values())


def test_selecting_heads_leaves_the_model_unchanged(tokens: Tensor) -> None:
    model = model_of().train()
    before = model(tokens).logits
    select_heads(model, [tokens], "importance")
    select_heads(model, [tokens])
    assert model.training and model(tokens).logits.equal(before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_without_heads_is_refused(share: float, tokens: Tensor) -> None:
    with pytest.raises(ConfigError, match="must be above 0 and at most 1"):
        select_heads(model_of(), [tokens], share=share)


@pytest.mark.parametrize("by", ["entropy", "importance"])
def test_selecting_heads_without_text_is_refused(by: Any) -> None:
    with pytest.raises(ConfigError, match="at least one batch"):
        select_heads(model_of(), [], by)
