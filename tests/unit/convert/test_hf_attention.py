"""Attention maps of pretrained models against their own code, on random weights."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_decoders import KINDS, model_of
from small_evaluation import model_config
from small_motif import MotifConfig, MotifForCausalLM
from small_phi4flash import Phi4FlashConfig, Phi4FlashForCausalLM
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from difftransformer.convert.attention_hooks import capture_attention
from difftransformer.convert.hf_attention.differential import DifferentialLayer
from difftransformer.convert.hf_attention.maps import CapturedAttention
from difftransformer.convert.hf_attention.registry import reader
from difftransformer.convert.llama import to_llama
from difftransformer.errors import CheckpointError
from difftransformer.models.attention.maps import AttentionBlock
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.transformer import Transformer

T = 13
EXACT = {"rtol": 0.0, "atol": 1e-6}
SLIDING: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 5},
    "qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "gemma2": {"sliding_window": 5, "attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 3},
    "gemma3_text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
}


def tokens(size: int = 48) -> Tensor:
    return torch.randint(size, (2, T), generator=torch.Generator().manual_seed(0))


def spread(model: Any) -> Any:
    """Random weights whose maps are far from uniform, in float64."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name and "subln" not in name:
                weight.normal_(0, 0.4, generator=generator)
    return model.double().eval()


def read(model: Any, block: int = T) -> dict[int, list[AttentionBlock]]:
    """Rows of all layers, by layer."""
    actual = []
    with torch.inference_mode(), capture_attention(HFCausalLM(model), block) as layers:
        model(tokens())
        actual = [list(layer) for layer in layers]
    return {rows[0].layer: rows for rows in actual}


def own_maps(model: Any) -> list[Tensor]:
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        actual: list[Tensor] = model(tokens(), output_attentions=True).attentions
    return actual


CASES = [(kind, {}) for kind in KINDS] + [*SLIDING.items()]


@pytest.mark.parametrize(("kind", "settings"), CASES)
def test_maps_are_those_of_eager_attention(kind: str, settings: dict[str, Any]) -> None:
    model = spread(model_of(kind, **(settings | {"final_logit_softcapping": None})))
    expected = own_maps(model)
    actual = read(model)
    assert [*actual] == [0, 1] and model.config._attn_implementation == "eager"
    for layer, weights in enumerate(expected):
        (rows,) = actual[layer]
        assert rows.component_maps is None
        torch.testing.assert_close(rows.weights, weights.double(), **EXACT)
        assert bool((rows.weights.masked_select(~rows.mask) == 0).all())
    slides = {int(rows[0].mask[-1].sum()) for rows in actual.values()}
    assert (5 in slides) == bool(settings) and max(slides) in (5, T)


def test_capturing_attention_does_not_change_the_logits() -> None:
    model = spread(model_of("qwen3"))
    with torch.inference_mode():
        before = model(tokens()).logits
        with capture_attention(HFCausalLM(model), 4):
            during = model(tokens()).logits
        after = model(tokens()).logits
    torch.testing.assert_close(during, before, **EXACT)
    assert torch.equal(after, before)


MOTIFS = {
    "DIFF V1": {},
    "own positions": {"takes_position_embeddings": False},
    "grouped": {"num_attention_heads": 10, "num_noise_heads": 2, "num_key_value_heads": 4},
    "shared values": {"num_attention_heads": 12, "num_noise_heads": 4, "num_key_value_heads": 4},
}


def small(name: str) -> Any:
    if name == "Phi":
        return spread(Phi4FlashForCausalLM(Phi4FlashConfig()))
    return spread(MotifForCausalLM(MotifConfig(**MOTIFS[name])))


@pytest.mark.parametrize("name", [*MOTIFS, "Phi"])
def test_differential_maps_are_those_of_the_equations(name: str) -> None:
    model = small(name)
    actual = read(model)
    attending = {
        i: module
        for i, layer in enumerate(model.model.layers)
        for module in layer.modules()
        if hasattr(module, "first")
    }
    assert actual.keys() == attending.keys() and (name != "Phi" or [*actual] == [1, 3, 5, 7])
    for layer, module in attending.items():
        (rows,) = actual[layer]
        assert rows.component_maps is not None
        for ours, theirs in zip(rows.component_maps, (module.first, module.second), strict=True):
            torch.testing.assert_close(ours, theirs, **EXACT)
        expected = module.first - module.factor * module.second
        torch.testing.assert_close(rows.weights, expected, **EXACT)
        assert float(abs(module.factor)) > 0.01


@pytest.mark.parametrize("name", [*MOTIFS, "Phi"])
def test_the_output_of_a_layer_follows_from_its_maps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every position, through norm and projection: heads meet the values that they have."""
    layers: list[DifferentialLayer] = []
    usual = DifferentialLayer.output

    def record_layer(self: DifferentialLayer) -> Tensor:
        layers.append(self)
        return usual(self)

    monkeypatch.setattr(DifferentialLayer, "output", record_layer)
    model, outputs = small(name), []
    for module in model.modules():
        if type(module).__name__ in ("MotifAttention", "SambaYAttention"):
            module.register_forward_hook(lambda _, __, out: outputs.append(out[0]))
    read(model)
    assert len(layers) == len(outputs) > 1
    for layer, output in zip(layers, outputs, strict=True):
        captured = layer.captured
        attn = layer.norm(captured.attend()) * layer.head_scale
        assert captured.projection is not None
        torch.testing.assert_close(captured.projection(attn.flatten(2)), output, **EXACT)


def test_a_window_can_be_set_per_layer() -> None:
    model = small("Phi")
    expected = read(model)
    model.config.sliding_window = [None, 5, None, 5, None, None, None, None]
    del model.config.layer_types
    for layer, (rows,) in read(model).items():
        assert torch.equal(rows.weights, expected[layer][0].weights)
        assert int(rows.mask[-1].sum()) == (5 if layer < 4 else T)


@pytest.mark.parametrize("name", ["grouped", "Phi"])
def test_blocks_equal_the_rows_of_the_full_maps(name: str) -> None:
    model = small(name)
    full, parts = read(model), read(model, 4)
    for layer, (rows,) in full.items():
        assert [part.start for part in parts[layer]] == [0, 4, 8, 12]
        for part in parts[layer]:
            stop = part.mask.shape[1]
            assert torch.equal(part.mask, rows.mask[part.start : stop, :stop])
            assert part.component_maps is not None and rows.component_maps is not None
            both = zip(
                (part.weights, *part.component_maps),
                (rows.weights, *rows.component_maps),
                strict=True,
            )
            for ours, theirs in both:
                torch.testing.assert_close(ours, theirs[:, :, part.start : stop, :stop], **EXACT)


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(("variant", "kind"), [("softmax", "llama"), ("diff_v1", "diffllama")])
def test_an_exported_model_has_the_same_attention_maps(
    variant: str, kind: str, kv_heads: int
) -> None:
    attention = {"variant": variant, "head_dim": 4, "num_heads": 4, "num_kv_heads": kv_heads}
    config = replace(model_config(48), attention=attention, num_layers=2, d_model=32, norm_eps=1e-5)
    ours = Transformer.build(config, "sdpa", 0).eval()
    with torch.no_grad():
        for name, weight in ours.named_parameters():
            if "qkv_proj" in name:
                weight.mul_(3)
    theirs = read(to_llama(ours, kind).eval(), 5)
    with torch.inference_mode(), capture_attention(ours, 5) as layers:
        ours.hidden_states(tokens())
        mine = [list(layer) for layer in layers]
    for layer, expected in enumerate(mine):
        assert theirs.keys() == {0, 1} and len(expected) == len(theirs[layer]) == 3
        for block, other in zip(expected, theirs[layer], strict=True):
            torch.testing.assert_close(other.weights, block.weights, rtol=0, atol=1e-5)
            assert (
                (block.component_maps is None)
                == (other.component_maps is None)
                == (variant == "softmax")
            )
            for a, b in zip(block.component_maps or (), other.component_maps or (), strict=True):
                torch.testing.assert_close(b, a, rtol=0, atol=1e-5)


def mamba() -> Any:
    config = AutoConfig.for_model("mamba", vocab_size=48, hidden_size=16, num_hidden_layers=1)
    return AutoModelForCausalLM.from_config(config)


def with_sinks() -> Any:
    return model_of("gpt_oss", num_local_experts=2, num_experts_per_tok=1)


def with_swapped_pairs() -> Any:
    model = small("DIFF V1")
    attention = model.model.layers[1].self_attn
    usual = attention.forward

    def swapped(**inputs: Any) -> Any:
        rows = attention.q_proj.weight.data
        rows.copy_(rows.unflatten(0, (-1, 2, 6)).flip(1).flatten(0, 2))
        out = usual(**inputs)
        rows.copy_(rows.unflatten(0, (-1, 2, 6)).flip(1).flatten(0, 2))
        return out

    attention.forward = swapped
    return model


def without_its_modules() -> Any:
    model = small("Phi")
    for layer in model.model.layers:
        if hasattr(layer.attn, "Wqkv"):
            layer.attn.qkv = layer.attn.Wqkv
            layer.attn.__delattr__("Wqkv")
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (mamba, "MambaForCausalLM: its attention maps cannot be read"),
        (with_sinks, "its weights depend on s_aux"),
        (with_swapped_pairs, r"the output of layer 1 differs by \d+%"),
        (without_its_modules, "no module has Wqkv"),
    ],
)
def test_unreadable_attention_is_a_one_line_error(make: Any, message: str) -> None:
    model = make()
    with pytest.raises(CheckpointError, match=message) as refusal:
        read(model)
    assert "\n" not in str(refusal.value) and "convert/hf_attention" in str(refusal.value)


def test_a_layer_with_two_attention_calls_is_not_read_as_softmax(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DiffLlama under a name that no reader knows."""
    from transformers import DiffLlamaForCausalLM

    class Other(DiffLlamaForCausalLM):
        pass

    model = model_of("diffllama")
    seen: list[CapturedAttention] = []
    model.__class__ = Other
    refusal = pytest.raises(CheckpointError, match="layer 0 has more than one attention")
    with refusal, reader(model)(model, seen.append):
        model(tokens())
