import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from difftransformer.errors import BackendError, ConfigError
from difftransformer.models.attention.registry import attention_class, configure, variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.initialization import _generator
from difftransformer.models.linear import Linear
from difftransformer.models.sizes import count_parameters
from difftransformer.models.transformer import Transformer


def config(variant: str = "diff_v1", **changes: Any) -> ModelConfig:
    settings: dict[str, Any] = {
        "vocab_size": 61,
        "d_model": 48,
        "num_layers": 2,
        "ffn_dim": 100,
        "attention": {"variant": variant, "head_dim": 12},
        "max_positions": 96,
    }
    return ModelConfig(**settings | changes)


def tokens(batch: int = 3, length: int = 33) -> torch.Tensor:
    return torch.randint(61, (batch, length), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("variant", variants())
def test_a_seed_decides_every_bit_and_leaves_the_global_state_alone(variant: str) -> None:
    before = torch.get_rng_state()
    first, second = (Transformer.build(config(variant), "sdpa", seed=3) for _ in range(2))
    other = Transformer.build(config(variant), "sdpa", seed=4)
    assert torch.equal(before, torch.get_rng_state())
    for name, tensor in first.state_dict().items():
        assert torch.isfinite(tensor).all(), name
        assert torch.equal(tensor, second.state_dict()[name]), name
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@pytest.mark.parametrize("initializer", ["fan_in", "normal"])
def test_initial_weights_have_the_stated_spread(initializer: str) -> None:
    attention = {"variant": "diff_v1", "head_dim": 32}
    sizes = {"d_model": 256, "ffn_dim": 512, "num_layers": 3}
    wide = config(**sizes, attention=attention, initializer=initializer, init_std=0.03)
    model = Transformer.build(wide, "sdpa", seed=0)
    base = 256**-0.5 if initializer == "fan_in" else 0.03
    inner = 512**-0.5 if initializer == "fan_in" else 0.03
    layer = model.layers[1]
    spreads = {
        model.embedding.weight: 1.0,
        model.output_weight: base,
        **dict.fromkeys(layer.attention.qkv_proj.weight.split(256), base),
        layer.attention.o_proj.weight: base / math.sqrt(6),
        **dict.fromkeys(layer.ffn.gate_up_proj.weight.split(512), base),
        layer.ffn.down_proj.weight: inner / math.sqrt(6),
    }
    for weight, spread in spreads.items():
        assert weight.std().item() == pytest.approx(spread, rel=0.03)


@pytest.mark.parametrize("variant", variants())
def test_weights_do_not_depend_on_the_order_in_which_they_are_drawn(variant: str) -> None:
    model, backwards = Transformer.build(config(variant), "sdpa", 3), Transformer(config(variant))
    for module in list(backwards.modules()):
        module._modules = dict(reversed(module._modules.items()))
        module._parameters = dict(reversed(module._parameters.items()))
    backwards.init_weights(3)
    for name, tensor in backwards.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_weight_matrices_are_initialized_independently() -> None:
    model = Transformer.build(config("softmax", ffn_dim=48), "sdpa", 3)
    weights = [
        rows
        for name, module in model.named_modules()
        if isinstance(module, Linear)
        for _, rows in module.named_weights(name)
        if rows.shape == (48, 48)
    ]
    assert len(weights) == 2 * (4 + 3)
    correlations = torch.corrcoef(torch.stack([weight.detach().flatten() for weight in weights]))
    assert (correlations - torch.eye(14)).abs().max() < 0.1


def test_the_generator_of_a_name_is_the_same_on_every_machine() -> None:
    actual = _generator(3, "layers.0.attention.q_proj.weight").initial_seed()
    assert actual == 0xB0DF7BD55EFE96F1  # as sha256sum begins


def test_left_padding_changes_nothing_with_mask_and_positions() -> None:
    model, batch = Transformer.build(config(), "sdpa", 0), tokens(1, 20)
    padded = F.pad(batch, (4, 0))
    mask = torch.ones(24, 24, dtype=torch.bool).tril()
    mask[:, :4] = torch.eye(24, dtype=torch.bool)[:, :4]
    positions = (torch.arange(24) - 4).clamp_min(0)[None]
    out = model(padded, positions=positions, mask=mask[None, None])
    torch.testing.assert_close(out[:, 4:], model(batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("variant", variants())
def test_parameters_are_counted_without_memory(variant: str, tied: bool) -> None:
    small = config(variant, tie_embeddings=tied)
    model = Transformer.build(small, "sdpa", 0)
    assert count_parameters(small) == sum(p.numel() for p in model.parameters())
    # 1.4B of the paper's section 3.2: 12 d_model^2 a layer, one embedding of 100288 (see notes).
    ffn = 8 * 2048 // 3
    attention = {"variant": variant, "head_dim": 128}
    sizes = {"vocab_size": 100_288, "d_model": 2048, "num_layers": 24, "ffn_dim": ffn}
    paper = config(**sizes, attention=attention, tie_embeddings=True)
    with torch.device("meta"):
        mixer = attention_class(variant)(configure(attention, 2048), 2048, 0, "eager")
    layer = sum(p.numel() for p in mixer.parameters()) + 3 * 2048 * ffn + 2 * 2048
    assert count_parameters(paper) == 24 * layer + 2048 + 100_288 * 2048
    if variant in ("softmax", "diff_v1"):  # the two that the paper compares at equal size
        assert count_parameters(paper) == pytest.approx(1.41e9, rel=0.01)


def test_tied_embeddings_are_one_matrix() -> None:
    model = Transformer.build(config(tie_embeddings=True), "sdpa", 0)
    assert model.lm_head is None
    assert model.output_weight is model.embedding.weight


def test_a_model_used_in_inference_mode_can_still_train() -> None:
    model = Transformer.build(config(), "blocked", 0)
    with torch.inference_mode():
        model(tokens())
    model(tokens()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_too_long_a_sequence_is_refused() -> None:
    model = Transformer.build(config(), "sdpa", 0)
    with pytest.raises(ConfigError, match=r"97 positions .*model\.max_positions 96"):
        model(tokens(1, 97))


def test_an_unknown_backend_is_refused_when_the_model_is_made() -> None:
    with pytest.raises(BackendError, match="unknown backend 'spda'; did you mean 'sdpa'"):
        Transformer(config(), "spda")


@pytest.mark.parametrize("variant", ["softmax", "diff_v1"])
@pytest.mark.parametrize("full", [True, False])
def test_residual_stream_has_the_configured_dtype(variant: str, full: bool) -> None:
    model = Transformer.build(config(variant, residual_in_fp32=full), "sdpa", seed=11)
    batch, stream = tokens(), []
    for layer in model.layers:
        layer.register_forward_hook(lambda layer, inputs, out: stream.append(out.dtype))
    exact = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(batch)
    rounded.float().sum().backward()
    expected = torch.float32 if full else torch.bfloat16
    assert stream == [torch.float32] * 2 + [expected] * 2
    assert 0 < float((rounded.float() - exact).norm() / exact.norm()) < 0.02
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
