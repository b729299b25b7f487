"""Export to transformers' Llama and DiffLlama, and back: same function, same gradients."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_transformers import byte_level, with_gains
from transformers import AutoConfig

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.convert.checkpoint import save_model
from difftransformer.convert.export import export_model
from difftransformer.convert.llama import from_llama, llama_state_dict, save_llama, to_llama
from difftransformer.data.rows import write_words
from difftransformer.errors import UserError

FORMATS = {"softmax": "llama", "diff_v1": "diffllama"}
CASES = [
    pytest.param(variant, kv_heads, tied, id=f"{variant}-{'gqa' if kv_heads else 'mha'}-{tied=}")
    for variant in FORMATS
    for kv_heads in (None, 2)
    for tied in (False, True)
]


def build(variant: str, kv_heads: int | None = None, tied: bool = False, **options: Any) -> Any:
    heads = {"num_heads": 4} if variant == "diff_v1" else {}
    attention = {"variant": variant, "head_dim": 8, "num_kv_heads": kv_heads} | heads | options
    return with_gains(attention, seed=3, tie_embeddings=tied)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A folder with a tokenizer as the dataset's, to which a test adds a model."""
    tokenizer = byte_level(
        61, ["attention to the relevant context"], "<|endoftext|>", alphabet=False
    )
    folder = tmp_path / "trained"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    description = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(description))
    return folder


def tokens() -> torch.Tensor:
    return torch.randint(61, (2, 17), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("variant", "kv_heads", "tied"), CASES)
def test_logits_and_gradients_of_llama_equal_ours(
    variant: str, kv_heads: int | None, tied: bool
) -> None:
    model = build(variant, kv_heads, tied)
    upstream = to_llama(model, FORMATS[variant])
    weights = dict(model.named_parameters())
    direction = torch.randn(2, 17, 61, generator=torch.Generator().manual_seed(2)) / 61
    our_logits = model(tokens())
    ours = torch.autograd.grad((our_logits * direction).sum(), weights.values())
    mapped = llama_state_dict(model)  # differentiable, so the chain rule leads back to ours
    logits = torch.func.functional_call(upstream, mapped, (tokens(),)).logits
    torch.testing.assert_close(logits, our_logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(upstream(tokens()).logits, our_logits, rtol=0, atol=1e-5)
    assert our_logits.abs().max() > 0.5
    theirs = torch.autograd.grad((logits * direction).sum(), weights.values())
    for name, mine, other in zip(weights, ours, theirs, strict=True):
        torch.testing.assert_close(other, mine, rtol=1e-5, atol=1e-5, msg=name)
        assert mine.abs().max() > 0, name


@pytest.mark.parametrize(("variant", "kv_heads", "tied"), CASES)
def test_an_exported_folder_equals_that_of_transformers(
    variant: str, kv_heads: int | None, tied: bool, tmp_path: Path
) -> None:
    model, kind = build(variant, kv_heads, tied), FORMATS[variant]
    save_llama(tmp_path / "ours", model, kind, eos_token_id=7)
    upstream = to_llama(model, kind)
    upstream.config.eos_token_id = upstream.generation_config.eos_token_id = 7
    upstream.save_pretrained(tmp_path / "theirs")
    settings = [AutoConfig.from_pretrained(tmp_path / who).to_dict() for who in ("ours", "theirs")]
    for config in settings:
        del config["transformers_version"], config["_name_or_path"]
    assert settings[0] == settings[1]
    ours, theirs = (load_file(tmp_path / who / "model.safetensors") for who in ("ours", "theirs"))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("vocab", [{"a": 0, "<end>": 5}, [["a", -1.0], ["<end>", -2.0]]])
def test_an_end_of_text_of_the_vocabulary_is_found(vocab: Any, tmp_path: Path) -> None:
    save_model(tmp_path / "one", (model := build("softmax")), model.config)
    tokenizer = {"added_tokens": [], "model": {"vocab": vocab}}
    (tmp_path / "one" / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "one" / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    export_model(tmp_path / "one", tmp_path / "two")
    eos_ids = [json.loads((tmp_path / "two" / f"{name}.json").read_text())["eos_token_id"]
            for name in ("config", "generation_config")]  # fmt: skip
    assert eos_ids == [5 if isinstance(vocab, dict) else 1] * 2


@pytest.mark.parametrize(("variant", "kv_heads", "tied"), CASES)
def test_round_trip_is_bit_exact(variant: str, kv_heads: int | None, tied: bool) -> None:
    upstream = to_llama(build(variant, kv_heads, tied), FORMATS[variant])
    back = from_llama(upstream)
    again = to_llama(back, FORMATS[variant])
    assert again.config.to_dict() == upstream.config.to_dict()
    for name, tensor in upstream.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    third = from_llama(again)
    assert third.config == back.config
    for name, tensor in back.state_dict().items():
        assert torch.equal(third.state_dict()[name], tensor), name


@pytest.mark.parametrize("variant", FORMATS)
def test_a_transformers_model_is_imported(variant: str) -> None:
    import transformers

    prefix = {"softmax": "Llama", "diff_v1": "DiffLlama"}[variant]
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=61,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        rms_norm_eps=1e-6,
    )
    torch.manual_seed(0)
    upstream = getattr(transformers, f"{prefix}ForCausalLM")(config).eval()
    with torch.no_grad():
        ours, theirs = from_llama(upstream)(tokens()), upstream(tokens()).logits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_unsupported_models_are_not_imported() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    small = {"vocab_size": 11, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    biased = LlamaConfig(**small, num_attention_heads=2, attention_bias=True)
    with pytest.raises(UserError, match="attention_bias is True"):
        from_llama(LlamaForCausalLM(biased))
    other = GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2)
    with pytest.raises(UserError, match="gpt2"):
        from_llama(GPT2LMHeadModel(other))


REFUSED = [
    ("softmax", {"norm": True}, "llama", "per-head norm"),
    ("softmax", {"gain": 2.0}, "llama", "per-head gain"),
    ("softmax", {}, "diffllama", "attention is softmax"),
    ("softmax", {"num_heads": 5}, "llama", "divide d_model"),
    ("diff_v1", {}, "llama", "attention is diff_v1"),
    ("diff_v1", {"norm": False}, "diffllama", "per-head norm"),
    ("diff_v1", {"lambda_init": 0.8}, "diffllama", "lambda_init is exponential, not 0.8"),
    ("diff_v1", {"lambda_fixed": 0.0}, "diffllama", "learns lambda, here it is 0.0"),
    ("diff_v1", {"lambda_fixed": "init"}, "diffllama", "learns lambda, here it is init"),
    ("diff_v1", {"norm_eps": 1e-6}, "diffllama", "norm_eps"),
    ("grouped_diff", {}, "diffllama", "attention is grouped_diff, diffllama is diff_v1"),
    ("dex_s", {}, "llama", "attention is dex_s, llama is softmax"),
    ("diff_v1", {}, "gguf", "attention is diff_v1, llama is softmax"),
    ("softmax", {}, "onnx", "unknown format 'onnx'"),
]


@pytest.mark.parametrize(("variant", "options", "form", "why"), REFUSED)
def test_unsupported_settings_are_not_exported(
    variant: str, options: dict[str, Any], form: str, why: str, tmp_path: Path
) -> None:
    model = build(variant, **options)
    save_model(tmp_path / "model", model, model.config)
    with pytest.raises(UserError, match=why) as refusal:
        export_model(tmp_path / "model", tmp_path / "out", form)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("variant", FORMATS)
def test_an_exported_folder_loads_without_our_code(
    variant: str, tmp_path: Path, trained: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = build(variant)
    save_model(trained, model, model.config)
    out = tmp_path / "out"
    export_model(trained, out, FORMATS[variant])
    upstream = AutoModelForCausalLM.from_pretrained(out)
    assert type(upstream).__module__.startswith("transformers.")
    assert "auto_map" not in json.loads((out / "config.json").read_text())
    assert not list(out.glob("*.py"))
    with torch.no_grad():
        ours, theirs = model(tokens()), upstream(tokens()).logits
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert AutoTokenizer.from_pretrained(out).eos_token_id == upstream.config.eos_token_id == 0
    with torch.no_grad():
        back = from_llama(upstream)(tokens())
    torch.testing.assert_close(back, ours, rtol=0, atol=1e-5)


@pytest.mark.parametrize("form", ["huggingface", "llama"])
def test_a_model_of_generated_rows_is_exported_and_generates(tmp_path: Path, form: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = RecallConfig(
        row_length=25, num_keys=8, num_values=8, num_fillers=16, max_needles=2, num_queries=4
    )
    model = build("softmax")
    save_model(tmp_path / "trained", model, model.config)
    write_words(tmp_path / "trained", words)
    export_model(tmp_path / "trained", tmp_path / "out", form)
    if form == "huggingface":
        importlib.import_module("difftransformer.convert.hf")
    face = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert face.config.eos_token_id is None
    prompt = AutoTokenizer.from_pretrained(tmp_path / "out")("k01 v02 f03 k01", return_tensors="pt")
    assert prompt.input_ids.shape == (1, 4)
    written = face.generate(prompt.input_ids, max_new_tokens=3, do_sample=False)
    with torch.no_grad():
        expected = model(prompt.input_ids)[0, -1].argmax()
    assert written.shape == (1, 7) and written[0, 4] == expected


def test_a_finished_export_is_not_overwritten(tmp_path: Path) -> None:
    model = build("softmax")
    save_model(tmp_path / "model", model, model.config)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        export_model(tmp_path / "model", tmp_path / "out", "llama")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_tokenizer_without_its_description_is_refused(tmp_path: Path, trained: Path) -> None:
    model = build("softmax")
    save_model(trained, model, model.config)
    (trained / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer_config\.json"):
        export_model(trained, tmp_path / "out", "llama")


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("form", ["huggingface", "diffllama"])
def test_a_folder_saved_by_transformers_is_exported(
    form: str, sharded: bool, tmp_path: Path, trained: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    importlib.import_module("difftransformer.convert.hf")
    save_model(trained, (first := build("diff_v1")), first.config)
    model = AutoModelForCausalLM.from_pretrained(trained)
    tokenizer = AutoTokenizer.from_pretrained(trained)
    saved = tmp_path / "saved"
    if sharded:
        model.save_pretrained(saved, max_shard_size="5KB")
        tokenizer.save_pretrained(saved)
        assert len(list(saved.glob("model-*.safetensors"))) > 1
    else:
        arguments = TrainingArguments(str(tmp_path), max_steps=1, use_cpu=True, report_to=[])
        trainer = Trainer(model, arguments, processing_class=tokenizer)
        trainer.save_model(str(saved))
    export_model(saved, tmp_path / "out", form)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert again.config.eos_token_id == tokenizer.eos_token_id == 0
    with torch.no_grad():
        torch.testing.assert_close(again(tokens()).logits, first(tokens()), rtol=0, atol=1e-5)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    from difftransformer import DiffTransformerForCausalLM

    DiffTransformerForCausalLM.wrap(build("diff_v1")).save_pretrained(
        tmp_path / "saved", max_shard_size="5KB"
    )
    shard = min((tmp_path / "saved").glob("model-*.safetensors"))
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard.name}: no such file"):
        export_model(tmp_path / "saved", tmp_path / "out")
