"""The transformers interface: generation with a cache and padding, saving, Auto classes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_layers import FITTING

from difftransformer.convert.checkpoint import load_model, save_model
from difftransformer.errors import UserError
from difftransformer.models.attention.registry import variants
from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer

TEXT = "attention to the relevant context while noise is cancelled"
VARIANTS = [
    pytest.param({"variant": "softmax"}, False, id="softmax"),
    pytest.param({"variant": "softmax", "num_kv_heads": 2, "norm": True}, True, id="softmax-gqa"),
    pytest.param({"variant": "diff_v1"}, True, id="diff_v1"),
    pytest.param({"variant": "diff_v2"}, True, id="diff_v2"),
    pytest.param({"variant": "gpt_oss_sink"}, False, id="gpt_oss_sink"),
    pytest.param({"variant": "dint"}, True, id="dint"),
    pytest.param(
        {"variant": "diff_v1", "num_heads": 4, "num_kv_heads": 2}, False, id="diff_v1-gqa"
    ),
]
VARIANTS += [
    pytest.param({"variant": name, **FITTING.get(name, {})}, False, id=name)
    for name in variants()
    if name not in [parameters.id for parameters in VARIANTS]
]


def build(
    attention: dict[str, Any], tied: bool = False, vocab_size: int = 61, backend: str = "sdpa"
) -> Transformer:
    config = ModelConfig(
        vocab_size=vocab_size,
        d_model=32,
        num_layers=2,
        ffn_dim=40,
        attention={"head_dim": 8} | attention,
        max_positions=64,
        tie_embeddings=tied,
    )
    return Transformer.build(config, backend, seed=5).eval()


def face(model: Transformer) -> Any:
    from difftransformer.convert.hf import DiffTransformerForCausalLM

    return DiffTransformerForCausalLM.wrap(model)


def prompt(length: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, 61, (1, length), generator=generator)


@pytest.mark.parametrize(("attention", "tied"), VARIANTS)
def test_cached_generation_is_uncached_generation(attention: dict[str, Any], tied: bool) -> None:
    model = face(build(attention, tied))
    options = {"max_new_tokens": 12, "do_sample": False, "output_logits": True}
    options |= {"return_dict_in_generate": True, "pad_token_id": 0}
    cached = model.generate(prompt(9), use_cache=True, **options)
    plain = model.generate(prompt(9), use_cache=False, **options)
    assert torch.equal(cached.sequences, plain.sequences)
    assert cached.past_key_values.get_seq_length() == 20  # so the cache was really used
    torch.testing.assert_close(
        torch.stack(cached.logits), torch.stack(plain.logits), rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("attention", "tied"), VARIANTS)
def test_left_padding_changes_nothing(
    attention: dict[str, Any], tied: bool, use_cache: bool
) -> None:
    model = face(build(attention, tied))
    short, long = prompt(5, seed=1), prompt(11, seed=2)
    batch = torch.cat((torch.nn.functional.pad(short, (6, 0)), long))
    options = {"max_new_tokens": 8, "do_sample": False, "use_cache": use_cache, "pad_token_id": 0}
    together = model.generate(batch, attention_mask=(batch > 0).long(), **options)
    assert torch.equal(together[0, 11:], model.generate(short, **options)[0, 5:])
    assert torch.equal(together[1, 11:], model.generate(long, **options)[0, 11:])


@pytest.mark.parametrize("backend", ["eager", "blocked", "sdpa"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_a_batch_does_not_reach_the_logits(side: str, backend: str) -> None:
    model = face(build({"variant": "diff_v1"}, backend=backend))
    assert model.model.backend == backend
    short = prompt(5)
    pad = (4, 0) if side == "left" else (0, 4)
    padded = torch.nn.functional.pad(short, pad)
    where = slice(4, None) if side == "left" else slice(None, 5)
    with torch.no_grad():
        alone = model(short).logits
        inside = model(padded, attention_mask=(padded > 0).long()).logits
    assert inside.isfinite().all()
    torch.testing.assert_close(inside[:, where], alone, rtol=0, atol=1e-4)


def test_beam_search_and_sampling_run() -> None:
    model = face(build({"variant": "diff_v1"}))
    beams = model.generate(prompt(4), num_beams=3, max_new_tokens=5, pad_token_id=0)
    torch.manual_seed(0)
    sampled = model.generate(prompt(4), do_sample=True, max_new_tokens=5, pad_token_id=0)
    assert beams.shape == sampled.shape == (1, 9)


def test_loss_of_labels_is_the_shifted_cross_entropy() -> None:
    model = face(build({"variant": "softmax"}))
    tokens = prompt(12)
    output = model(tokens, labels=tokens)
    expected = torch.nn.functional.cross_entropy(output.logits[0, :-1], tokens[0, 1:])
    torch.testing.assert_close(output.loss, expected)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model(tokens, logits_to_keep=2).logits.shape == (1, 2, 61)
    assert isinstance(model(tokens, return_dict=False), tuple)


@pytest.mark.parametrize(("attention", "tied"), VARIANTS)
def test_save_and_reload(attention: dict[str, Any], tied: bool, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = build(attention, tied)
    face(model).save_pretrained(tmp_path / "face")
    save_model(tmp_path / "plain", model, model.config)
    reloaded = [
        AutoModelForCausalLM.from_pretrained(tmp_path / "face"),
        AutoModelForCausalLM.from_pretrained(tmp_path / "plain"),
        face(load_model(tmp_path / "face")),
    ]
    expected = model.state_dict()
    for other in reloaded:
        assert other.model.config == model.config
        actual = other.model.state_dict()
        assert actual.keys() == expected.keys()
        assert all(torch.equal(actual[name], expected[name]) for name in expected)
        with torch.no_grad():
            assert torch.equal(other(prompt(9)).logits, model(prompt(9)))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_the_attention_implementation_selects_our_backend(backend: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    face(build({"variant": "diff_v1"})).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation=backend)
    assert model.model.backend == backend


def test_a_fresh_model_from_a_config_is_initialized_like_ours() -> None:
    from transformers import AutoModelForCausalLM

    config = face(build({"variant": "diff_v1"})).config
    torch.manual_seed(1)
    first = AutoModelForCausalLM.from_config(config)
    torch.manual_seed(1)
    second = AutoModelForCausalLM.from_config(config)
    for parameter, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(parameter, other)
    for projection in (first.model.layers[0].attention.o_proj, first.model.layers[1].ffn.down_proj):
        expected = projection.in_features**-0.5 / 2  # fan-in, divided by sqrt(2 layers)
        assert projection.weight.std().item() == pytest.approx(expected, rel=0.1)


def test_a_checkpoint_that_lacks_a_tensor_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    face(build({"variant": "softmax"})).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["layers.1.ffn.down_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="no tensor for weight of Linear"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_unsupported_options_raise() -> None:
    model = face(build({"variant": "softmax"}))
    with pytest.raises(UserError, match="output_attentions"):
        model(prompt(4), output_attentions=True)
    with pytest.raises(UserError, match="static cache"):
        from transformers import StaticCache

        model(prompt(4), past_key_values=StaticCache(config=model.config, max_cache_len=8))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("target", ["all-linear", "embedding", "lm_head"])
def test_merging_an_adapter_preserves_the_logits(target: str, tied: bool) -> None:
    import peft

    model = face(build({"variant": "diff_v1"}, tied))
    assert model.config.tie_word_embeddings == model.config.to_dict()["tie_word_embeddings"] == tied
    with torch.no_grad():
        before = model(prompt(9)).logits
    targets = target if target == "all-linear" else [target]
    settings = peft.LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM")
    if tied and target == "lm_head":
        with pytest.raises(ValueError, match=r"lm_head.* not found"):
            peft.get_peft_model(model, settings)
        return
    adapted = peft.get_peft_model(model, settings).eval()
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(name)))
        changed = adapted(input_ids=prompt(9)).logits
        merged = adapted.merge_and_unload()(prompt(9)).logits
    assert (changed - before).abs().max() > 0.1  # so the adapter is part of what is computed
    torch.testing.assert_close(merged, changed, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["PromptTuningConfig", "PromptEncoderConfig"])
def test_prompt_tuning_trains_and_generates(kind: str) -> None:
    import peft

    settings = getattr(peft, kind)(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = peft.get_peft_model(face(build({"variant": "diff_v1"})), settings)
    model(input_ids=prompt(9), labels=prompt(9)).loss.backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert trained and all(parameter.grad.abs().max() > 0 for parameter in trained)
    written = model.eval().generate(input_ids=prompt(9), max_new_tokens=2, pad_token_id=0)
    assert written.shape == (1, 11)


@pytest.mark.parametrize("tied", [False, True])
def test_the_vocabulary_is_resized(tied: bool, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = face(build({"variant": "diff_v1"}, tied))
    with torch.no_grad():
        before = model(prompt(9)).logits
    model.resize_token_embeddings(70)
    assert model.model.config.vocab_size == model.config.vocab_size == 70
    with torch.no_grad():
        after = model(prompt(9)).logits
        assert after.shape == (1, 9, 70)
        torch.testing.assert_close(after[..., :61], before)
        model.save_pretrained(tmp_path)
        assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(prompt(9)).logits, after)
    assert torch.equal(load_model(tmp_path).embedding.weight, model.get_input_embeddings().weight)
    with pytest.raises(UserError, match="mean_resizing"):
        model.resize_token_embeddings(80, mean_resizing=False)
    with pytest.raises(UserError, match="resize_token_embeddings"):
        AutoModelForCausalLM.from_pretrained(tmp_path, vocab_size=80, ignore_mismatched_sizes=True)


@pytest.mark.parametrize("tied", [False, True])
def test_embeddings_are_replaced(tied: bool, tmp_path: Path) -> None:
    model = face(build({"variant": "diff_v1"}, tied))
    embedding, head = torch.nn.Embedding(61, 32), torch.nn.Linear(32, 61, bias=False)
    model.set_input_embeddings(embedding)
    assert model.get_input_embeddings() is embedding
    hidden = model.model.hidden_states(prompt(9))
    weight = embedding.weight if tied else model.get_output_embeddings().weight
    torch.testing.assert_close(model(prompt(9)).logits, hidden @ weight.T)
    model.set_output_embeddings(head)
    torch.testing.assert_close(model(prompt(9)).logits, head(hidden))
    model.save_pretrained(tmp_path)
    assert torch.equal(load_model(tmp_path).output_weight, head.weight)


def test_activation_checkpointing_is_enabled_through_transformers() -> None:
    model = face(build({"variant": "diff_v1"}))
    tokens = prompt(12)

    def gradients() -> list[torch.Tensor]:
        return list(torch.autograd.grad(model(tokens, labels=tokens).loss, [*model.parameters()]))

    expected = gradients()
    calls: list[int] = []
    model.model.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    model.gradient_checkpointing_enable()
    assert model.is_activation_checkpointing
    for actual, grad in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(actual, grad)
    assert len(calls) == 2
    cached = model(tokens, use_cache=True)  # with a cache nothing is computed again
    cached.logits.sum().backward()
    assert len(calls) == 3 and cached.past_key_values.get_seq_length() == 12
    model.gradient_checkpointing_disable()
    assert not model.is_activation_checkpointing
    gradients()
    assert len(calls) == 4
    with pytest.raises(UserError, match="every_n_layers"):
        model.activation_checkpointing_enable(every_n_layers=2)


def test_embeddings_in_place_of_ids() -> None:
    model = face(build({"variant": "diff_v1"}))
    embedded = model.get_input_embeddings()(prompt(9))
    assert torch.equal(model(inputs_embeds=embedded).logits, model(prompt(9)).logits)
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    written = model.generate(inputs_embeds=embedded, **options)
    assert torch.equal(written, model.generate(prompt(9), **options)[:, 9:])


def test_logits_can_be_limited_to_positions() -> None:
    model = face(build({"variant": "diff_v1"}))
    every = model(prompt(9)).logits
    places = torch.tensor([1, 3])
    actual = model(prompt(9), logits_to_keep=places).logits
    torch.testing.assert_close(actual, every[:, places])
    torch.testing.assert_close(model(prompt(9), logits_to_keep=np.int64(2)).logits, every[:, -2:])


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({}, "exactly one of input_ids and inputs_embeds"),
        ({"input_ids": prompt(4), "inputs_embeds": torch.ones(1, 4, 32)}, "exactly one"),
        ({"input_ids": prompt(4)[:, :0]}, r"input_ids has shape \[1, 0\]"),
        ({"input_ids": prompt(4)[:0]}, r"input_ids has shape \[0, 4\]"),
        ({"input_ids": prompt(4)[0]}, r"input_ids has shape \[4\]"),
        ({"inputs_embeds": torch.ones(4, 32)}, r"inputs_embeds has shape \[4, 32\]"),
    ],
)
def test_inputs_without_a_position_are_refused(inputs: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why) as refusal:
        face(build({"variant": "diff_v1"}))(**inputs)
    assert "\n" not in str(refusal.value)


def test_the_attention_implementation_can_be_changed() -> None:
    model = face(build({"variant": "diff_v1"}))
    before = model(prompt(9)).logits
    model.set_attn_implementation("eager")
    assert {layer.attention.backend for layer in model.model.layers} == {"eager"}
    torch.testing.assert_close(model(prompt(9)).logits, before)


def test_a_model_compiles_with_its_loss_without_graph_breaks() -> None:
    """As in training, so without a cache, by the backend that `auto` takes on a CPU."""
    torch._dynamo.reset()
    model, tokens = face(build({"variant": "diff_v1"}, backend="cpu_dispatch")).train(), prompt(12)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    outcomes = []
    for call in (compiled, model):
        out = call(input_ids=tokens, labels=tokens)
        gradients = torch.autograd.grad(out.loss, [*model.parameters()])
        outcomes.append([out.loss, out.logits, *gradients])
    torch.testing.assert_close(*outcomes, rtol=1e-3, atol=1e-5)
