"""A model exported as GGUF and run by llama.cpp gives our tokens, logits and generations."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_llama_cpp import ask, log_probabilities, serve
from small_transformers import byte_level, with_gains
from tokenizers import Tokenizer, pre_tokenizers

from difftransformer.convert.checkpoint import save_model
from difftransformer.convert.export import export_model
from difftransformer.data.tokenizer import END_OF_TEXT, write_tokenizer
from difftransformer.errors import CheckpointError, DataError
from difftransformer.models.transformer import Transformer
from difftransformer.provenance.checksums import write_checked
from difftransformer.provenance.layout import TRAINING

VOCABULARY, UNUSED = 310, 5
TEXTS = [
    "Differential attention cancels noise.",
    "they're  isn't\n\n  a   table\tof 2410.05258 and 16.05\n",
    "Schrödinger λ₀ 注意力 🙂 <b>",
    " ",
    f"one{END_OF_TEXT}two",
]


def build(tied: bool, kv_heads: int | None) -> Transformer:
    heads = {"variant": "softmax", "head_dim": 16, "num_kv_heads": kv_heads}
    sizes: dict[str, Any] = {"vocab_size": VOCABULARY + UNUSED, "d_model": 64, "max_positions": 64}
    more: dict[str, Any] = {"rope_theta": 700.0, "norm_eps": 1e-4, "embedding_std": 0.3}
    return with_gains(heads, seed=5, tie_embeddings=tied, **sizes, **more)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    """One as `train_tokenizer` makes it, in the folder to which a test adds a model."""
    tokenizer: Tokenizer = byte_level(VOCABULARY, TEXTS[:2] * 3, END_OF_TEXT, alphabet=True)
    assert tokenizer.get_vocab_size() == VOCABULARY
    (tmp_path / "trained").mkdir()
    write_tokenizer(tmp_path / "trained/tokenizer.json", tokenizer, {"kind": "bpe"}, END_OF_TEXT)
    return tokenizer


@pytest.fixture(params=[(False, None), (True, 2)], ids=["plain", "shared keys, tied"])
def exported(
    request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Tokenizer
) -> tuple[Transformer, Any]:
    model = build(*request.param)
    save_model(tmp_path / "trained", model, model.config)
    export_model(tmp_path / "trained", tmp_path / "out", "gguf")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.gguf"]
    return model, serve(tmp_path / "out/model.gguf")


def test_llama_cpp_tokenizes_and_continues_identically(
    exported: tuple[Transformer, Any], tokenizer: Tokenizer
) -> None:
    model, server = exported
    for text in TEXTS:
        tokens = ask(server, "tokenize", content=text, parse_special=True)["tokens"]
        assert tokens == tokenizer.encode(text).ids, text

        with torch.no_grad():
            ours = torch.log_softmax(model(torch.tensor([tokens]))[0, -1].double(), -1)
        theirs = log_probabilities(server, tokens, len(ours), tokenizer.token_to_id("a"))
        torch.testing.assert_close(theirs, ours, rtol=0, atol=2e-5)


def test_a_generation_ends_with_the_document(
    exported: tuple[Transformer, Any], tokenizer: Tokenizer
) -> None:
    model, server = exported
    tokens = tokenizer.encode(TEXTS[0]).ids
    expected = list(tokens)
    while len(expected) < len(tokens) + 12:
        with torch.no_grad():
            expected.append(int(model(torch.tensor([expected]))[0, -1].argmax()))
    end = tokenizer.token_to_id(END_OF_TEXT)
    completion = server.handle_completions({"prompt": tokens, "n_predict": 12, "temperature": 0})
    assert end not in expected[len(tokens) :]
    assert completion["choices"][0]["text"] == tokenizer.decode(expected[len(tokens) :])
    wanted = {"prompt": tokens, "n_predict": 12, "temperature": 0, "logit_bias": [[end, 100]]}
    assert server.handle_completions(wanted)["choices"][0]["finish_reason"] == "stop"


def test_a_tokenizer_that_was_changed_after_training_is_refused(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model, folder = build(False, None), tmp_path / "trained"
    save_model(folder, model, model.config)
    write_checked(folder / TRAINING, {}, list(folder.iterdir()))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        original = (folder / name).read_text()
        (folder / name).write_text(original + " ")
        with pytest.raises(DataError, match=f"{name}: checksum mismatch"):
            export_model(folder, tmp_path / "out", "gguf")
        (folder / name).write_text(original)
    export_model(folder, tmp_path / "out", "gguf")


def test_unsupported_tokenizers_point_to_the_llama_cpp_converter(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    model = build(False, None)
    save_model(tmp_path / "trained", model, model.config)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    write_tokenizer(tmp_path / "trained/tokenizer.json", tokenizer, {"kind": "bpe"}, END_OF_TEXT)
    with pytest.raises(CheckpointError, match=r"not a tokenizer like GPT-2's.*convert_hf_to_gguf"):
        export_model(tmp_path / "trained", tmp_path / "out", "gguf")
    (tmp_path / "trained/tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer.json: no such file"):
        export_model(tmp_path / "trained", tmp_path / "out", "gguf")
    assert not (tmp_path / "out").exists()
