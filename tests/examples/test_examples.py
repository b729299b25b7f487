"""The files of examples/ do what they say."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import difftransformer
from difftransformer.models.attention.registry import variants
from difftransformer.models.layers import layer_class


def example(repository: Path, name: str) -> dict[str, Any]:
    return runpy.run_path(str(repository / "examples" / name))


def test_a_small_gpt_learns_its_text(repository: Path) -> None:
    parts = example(repository, "nanogpt_loop.py")
    losses = parts["main"]("the quick brown fox jumps over the lazy dog. " * 40, steps=40, batch=8)
    assert losses[0] > 2.5 and losses[-1] < 1
    model = parts["GPT"](30)
    tokens = torch.randint(30, (1, 8))
    written = model.generate(tokens, new=6)
    plain = tokens
    for _ in range(6):
        with torch.no_grad():
            plain = torch.cat((plain, model(plain)[:, -1:].argmax(-1)), dim=1)
    assert torch.equal(written, plain)  # so the cache of all layers counts positions rightly


def test_every_variant_fits_into_llama(repository: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    swap = example(repository, "llama_with_differential_attention.py")["swap_attention"]
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=50, intermediate_size=40, eos_token_id=None, **sizes)
    short, filler = torch.randint(1, 50, (1, 6)), torch.zeros(1, 3, dtype=torch.long)
    padded = torch.cat((filler, short), dim=1)
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    for variant in variants():
        model = swap(LlamaForCausalLM(config), layer_class(variant)).eval()
        alone = model.generate(short, attention_mask=torch.ones_like(short), **options)
        inside = model.generate(padded, attention_mask=(padded > 0).long(), **options)
        assert torch.equal(inside[:, 3:], alone), variant


def test_our_softmax_in_llama_is_llama(repository: Path) -> None:
    """With its own weights put in, which says that positions and masks are handed over rightly."""
    from transformers import LlamaConfig, LlamaForCausalLM

    swap = example(repository, "llama_with_differential_attention.py")["swap_attention"]
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, intermediate_size=40, **sizes)).eval()
    tokens = torch.randint(50, (2, 9))
    with torch.no_grad():
        expected = model(tokens).logits
        theirs = [layer.self_attn for layer in model.model.layers]
        for layer, old in zip(
            swap(model, layer_class("softmax")).model.layers, theirs, strict=True
        ):
            rows = [old.q_proj.weight, old.k_proj.weight, old.v_proj.weight]
            layer.self_attn.layer.qkv_proj.weight.copy_(torch.cat(rows))
            layer.self_attn.layer.o_proj.weight.copy_(old.o_proj.weight)
        torch.testing.assert_close(model(tokens).logits, expected, rtol=0, atol=1e-5)


def test_the_trainer_trains_and_saves(repository: Path, tmp_path: Path) -> None:
    main = example(repository, "finetune_with_trainer.py")["main"]
    losses = main(tmp_path)
    assert losses[-1] < losses[0] - 1
    assert (tmp_path / "model" / "model.safetensors").is_file()
    further = main(tmp_path / "further", start=tmp_path / "model", steps=10)
    assert further[0] < losses[0] - 1  # it went on from what was saved


def test_a_prompt_is_written_on(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from small_language_models import write_tokenizer

    settings = {"vocab_size": 300, "d_model": 32, "num_layers": 1, "ffn_dim": 32}
    settings |= {"max_positions": 64, "attention": {"variant": "diff_v1", "head_dim": 8}}
    config = difftransformer.DiffTransformerConfig(model=settings)
    difftransformer.DiffTransformerForCausalLM(config).save_pretrained(tmp_path)
    assert write_tokenizer(tmp_path) >= 256
    text = example(repository, "generate.py")["main"](tmp_path, "attention to", new_tokens=5)
    assert text.startswith("attention to") and len(text) > len("attention to")
    assert text in capsys.readouterr().out
