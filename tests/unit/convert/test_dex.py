"""Dex as a method of peft, on models of transformers: its equations, folding, files, heads."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel, get_peft_model
from safetensors.torch import load_file
from small_decoders import KINDS, LAYERS, WIDTH, model_of
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    Phi3Config,
    Phi3ForCausalLM,
)

from difftransformer.convert.dex import DexConfig, select_heads
from difftransformer.convert.dex.tuner import lambda_at
from difftransformer.errors import ConfigError


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 48, (3, 11), generator=torch.Generator().manual_seed(1))


def adapted(base: Any, **settings: Any) -> Any:
    """With an adapter in the middle of its annealing, lambda well away from zero."""
    model = get_peft_model(base, DexConfig(**({"heads": [1, 3], "annealing_steps": 8} | settings)))
    model.base_model.advance(4)
    with torch.no_grad():
        for layer in model.base_model.output_layers():
            if "default" in layer.dex_lambda:
                layer.dex_lambda["default"].fill_(0.4)
    return model


def slow_logits(model: Any, tokens: Tensor) -> Tensor:
    """Equation 5 head by head, on the input of each output projection of the plain model."""
    handles = []
    for layer in model.base_model.output_layers():
        if "default" not in layer.dex_difference:
            continue  # the control, which has no W_D

        def hook(module: Any, inputs: tuple[Tensor], own: Any = layer) -> tuple[Tensor]:
            lam, selected = own.current_lambda("default"), own.dex_heads["default"].tolist()
            differences = own.dex_difference["default"]
            parts = list(inputs[0].split(WIDTH, dim=-1))
            for index, head in enumerate(selected):
                W_D = differences[index] if differences.dim() == 3 else differences
                parts[head] = parts[head] - lam * (parts[head] @ W_D)
            return (torch.cat(parts, dim=-1),)

        handles.append(layer.base_layer.register_forward_pre_hook(hook))
    with model.disable_adapter():
        for layer in model.base_model.output_layers():
            layer.dex_difference.requires_grad_(True)
            layer.dex_lambda.requires_grad_(True)
        logits: Tensor = model(tokens).logits
    for handle in handles:
        handle.remove()
    return logits


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("difference", ["layer", "head"])
def test_the_output_follows_equation_5(kind: str, difference: str, tokens: Tensor) -> None:
    base = model_of(kind)
    plain = base(tokens).logits
    model = adapted(base, difference=difference)
    expected = slow_logits(model, tokens)
    assert (expected - plain).abs().max() > 1e-3
    torch.testing.assert_close(model(tokens).logits, expected, atol=1e-5, rtol=0)
    for layer in model.base_model.output_layers():
        layer.configs["default"].unfolded = True
    torch.testing.assert_close(model(tokens).logits, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_before_the_first_step_the_output_equals_the_base_model(kind: str, tokens: Tensor) -> None:
    base = model_of(kind)
    before = base(tokens).logits
    assert get_peft_model(base, DexConfig(annealing_steps=5))(tokens).logits.equal(before)


@pytest.mark.parametrize(
    ("settings", "matrices"),
    [({"difference": "layer"}, 5), ({"difference": "head"}, 5), ({"heads": "none"}, 3)],
    ids=["a layer", "a head", "kvo"],
)
@pytest.mark.parametrize("tied", [False, True])
def test_gradients_equal_those_of_the_equation(
    settings: dict[str, Any], matrices: int, tied: bool, tokens: Tensor
) -> None:
    """Where W_K, W_V and W_O have copies that train, the slow form has the base's own."""
    model = adapted(model_of("llama", tie_word_embeddings=tied).double(), **settings)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    copied = {name: name.replace("dex_weight.default", "base_layer.weight") for name in names}
    for name in copied.values():
        model.get_parameter(name).requires_grad_(True)
    actual, expected = (
        torch.autograd.grad(
            logits(tokens).log_softmax(-1)[..., 3].mean(), map(model.get_parameter, of)
        )
        for logits, of in (
            (lambda x: model(x).logits, names),
            (lambda x: slow_logits(model, x), copied.values()),
        )
    )
    assert len(names) == matrices * LAYERS
    for name, ours, slow in zip(names, actual, expected, strict=True):
        assert slow.abs().max() > 0, name
        torch.testing.assert_close(ours, slow, atol=1e-9, rtol=1e-7)


def test_trainable_parameters_are_those_of_the_paper() -> None:
    base = model_of("qwen2")
    model = get_peft_model(base, DexConfig())
    trained = {
        name.split(".self_attn.")[1] for name, p in model.named_parameters() if p.requires_grad
    }
    assert trained == {
        "k_proj.dex_weight.default", "v_proj.dex_weight.default", "o_proj.dex_weight.default",
        "o_proj.dex_difference.default", "o_proj.dex_lambda.default",
    }  # fmt: skip
    control = get_peft_model(model_of("qwen2"), DexConfig(heads="none"))
    names = {name for name, p in control.named_parameters() if p.requires_grad}
    assert len(names) == 3 * LAYERS and all("dex_weight" in name for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_merging_gives_a_plain_model_with_equal_outputs(kind: str, tokens: Tensor) -> None:
    base = model_of(kind)
    names = {name: tensor.shape for name, tensor in base.state_dict().items()}
    model = adapted(base)
    logits = model(tokens).logits
    plain = model.merge_and_unload()
    assert type(plain).__name__ == type(model_of(kind)).__name__
    assert {name: tensor.shape for name, tensor in plain.state_dict().items()} == names
    torch.testing.assert_close(plain(tokens).logits, logits, atol=1e-5, rtol=0)


def test_unmerging_restores_the_base_model_bit_exactly(tokens: Tensor) -> None:
    model = adapted(model_of())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    logits = model(tokens).logits
    model.merge_adapter()
    torch.testing.assert_close(model(tokens).logits, logits, atol=1e-5, rtol=0)
    model.unmerge_adapter()
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())


def test_training_resumes_identically_after_saving(tokens: Tensor, tmp_path: Path) -> None:
    def train(model: Any, steps: int) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.SGD(trained, 0.5)
        for _ in range(steps):
            optimizer.zero_grad()
            model(tokens, labels=tokens).loss.backward()
            optimizer.step()
            model.base_model.advance()

    model = get_peft_model(model_of(), DexConfig(heads=[1, 3], annealing_steps=8))
    train(model, 3)
    model.save_pretrained(tmp_path)
    opened = PeftModel.from_pretrained(model_of(), tmp_path, is_trainable=True)
    for peft_model in (model, opened):
        train(peft_model, 3)  # lambda is annealed on from where it was
    ours, theirs = (dict(peft_model.named_parameters()) for peft_model in (model, opened))
    assert any("dex_lambda" in name for name in ours)
    for name, parameter in ours.items():
        torch.testing.assert_close(theirs[name], parameter, rtol=0, atol=0, msg=name)
    assert not model(tokens).logits.equal(model_of()(tokens).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading_preserves_outputs(kind: str, tokens: Tensor, tmp_path: Path) -> None:
    model = adapted(model_of(kind), heads={"0": [0], "1": [1, 2]}, lambda_init=0.7)
    logits = model(tokens).logits
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"] == "DEX"
    opened = PeftModel.from_pretrained(model_of(kind), tmp_path)
    torch.testing.assert_close(opened(tokens).logits, logits, atol=0, rtol=0)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert {name.rpartition(".")[2] for name in saved} == {
        "dex_weight", "dex_difference", "dex_lambda", "dex_heads", "dex_step",
    }  # fmt: skip


@pytest.mark.parametrize("difference", ["layer", "head"])
def test_under_autocast_products_are_in_bfloat16_and_gradients_in_float32(
    difference: str, tokens: Tensor
) -> None:
    model = adapted(model_of("qwen2", initializer_range=0.2), difference=difference)
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def actual() -> tuple[Tensor, tuple[Tensor, ...]]:
        logits = model(tokens).logits
        loss = logits.float().log_softmax(-1)[..., 3].mean()
        return logits, torch.autograd.grad(loss, list(own.values()))

    exact, slopes = actual()
    with torch.autocast("cpu", torch.bfloat16):
        rough, theirs = actual()
    assert rough.dtype == torch.bfloat16
    assert 0 < (rough.float() - exact).abs().max() < 0.05 * exact.abs().max()
    for name, expected, slope in zip(own, slopes, theirs, strict=True):
        assert slope.dtype == torch.float32, name
        assert (slope - expected).norm() < 0.1 * expected.norm(), name


def test_on_weights_in_bfloat16_it_trains_in_float32(tokens: Tensor) -> None:
    model = adapted(model_of().bfloat16())
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    out = model(tokens).logits
    assert out.dtype == torch.bfloat16 and torch.isfinite(out).all()
    assert {p.dtype for p in model.merge_and_unload().parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("t", [0, 1, 3, 6, 7, 50])
def test_lambda_follows_equation_4(t: int) -> None:
    T, initial, learned = 6, 0.6, -0.2
    actual = {
        schedule: lambda_at(
            torch.tensor(t), torch.tensor(learned), initial,
            DexConfig(lambda_schedule=schedule, annealing_steps=T),
        ).item()
        for schedule in ("annealed", "learned", "learned_from_zero", "ramped", "fixed")
    }  # fmt: skip
    alpha = min(1.0, t / T)
    assert actual == pytest.approx(
        {
            "annealed": (1 - alpha) * (t / T) * initial + alpha * learned,
            "learned": learned,
            "learned_from_zero": learned,
            "ramped": alpha * initial,
            "fixed": initial,
        },
        abs=1e-6,
    )


@pytest.mark.parametrize(
    ("schedule", "start", "learns"),
    [
        ("annealed", 0.0, True),
        ("learned", 0.8 - 0.6 * math.exp(-0.3), True),
        ("learned_from_zero", 0.0, True),
        ("ramped", 0.0, False),
        ("fixed", 0.8 - 0.6 * math.exp(-0.3), False),
    ],
)
def test_lambda_initialization_and_training(schedule: str, start: float, learns: bool) -> None:
    config = DexConfig(lambda_schedule=schedule, annealing_steps=5)
    layer = get_peft_model(model_of(), config).base_model.output_layers()[1]
    assert layer.current_lambda("default").item() == pytest.approx(start)
    assert layer.dex_lambda["default"].requires_grad == learns


def test_zero_and_random_initialization(tokens: Tensor) -> None:
    zero = adapted(model_of(), start="zero")
    assert zero(tokens).logits.equal(model_of()(tokens).logits)
    layers = get_peft_model(model_of(), DexConfig(seed=3)).base_model.output_layers()
    drawn = [layer.dex_difference["default"].detach() for layer in layers]
    assert not drawn[0].equal(drawn[1])
    bound = WIDTH**-0.5
    assert all(0.9 * bound < matrix.abs().max() <= bound for matrix in drawn)
    again = get_peft_model(model_of(), DexConfig(seed=3)).base_model.output_layers()
    assert drawn[0].equal(again[0].dex_difference["default"].detach())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": "entropie"}, "neither 'all', 'none' nor"),
        ({"heads": [0, 4]}, "layer 0 has heads 0 to 3, got 4"),
        ({"heads": [-1]}, "has heads 0 to 3, got -1"),
        ({"heads": []}, "layer 0 has none"),
        ({"heads": {"0": [1]}}, "layer 1 is missing"),
        ({"lambda_schedule": "anealed"}, "did you mean 'annealed'"),
        ({"difference": "model"}, "DexConfig.difference"),
        ({"lambda_init": "depth"}, "neither a number nor 'exponential'"),
        ({"annealing_steps": -1}, "is negative"),
    ],
)
def test_invalid_settings_are_a_one_line_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refusal:
        get_peft_model(model_of(), DexConfig(**settings))
    assert "\n" not in str(refusal.value)


def test_a_model_without_the_projections_is_refused(tokens: Tensor) -> None:
    small = {"vocab_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    encoder = BertLMHeadModel(BertConfig(hidden_size=16, intermediate_size=16, **small))
    joined = GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=16, n_layer=1, n_head=2))
    sizes = {"hidden_size": 16, "intermediate_size": 16, "pad_token_id": None}
    phi = Phi3ForCausalLM(Phi3Config(**small, **sizes))  # a Llama but for its joined matrices
    for model in (encoder, joined, phi):
        for refused in (
            lambda model=model: get_peft_model(model, DexConfig()),
            lambda model=model: select_heads(model, [tokens]),
        ):
            with pytest.raises(ConfigError, match="Dex needs a decoder"):
                refused()


def test_quantized_projections_are_refused() -> None:
    model = model_of()
    model.model.layers[0].self_attn.o_proj = torch.nn.Identity()
    with pytest.raises(ConfigError, match="load the model without quantization"):
        get_peft_model(model, DexConfig())


def test_the_examples_of_the_dex_page_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every Python block of docs/dex.md, in order, on a small model in a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(48)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    model_of().save_pretrained(tmp_path / "base")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "base")
    page = (repository / "docs" / "dex.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {
        "folder": tmp_path / "base",
        "texts": ["w1 w2 w3 w4", "w9 w8 w7 w6"],
    }
    for block in blocks:
        exec(block, namespace)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
    (tokens,) = namespace["batches"][:1]
    torch.testing.assert_close(
        plain(tokens).logits, namespace["again"](tokens).logits, atol=1e-5, rtol=0
    )
    assert not plain(tokens).logits.equal(model_of()(tokens).logits)
