"""Attention on sentences: marked tokens and their shares."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_evaluation import RECALL, eval_context, metrics_of, model_config, scorer

from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluation.generation import encode, open_tokenizer
from difftransformer.evaluations.sentences.measure import measure, word_labels
from difftransformer.evaluations.sentences.sentences import SENTENCES, Sentence
from difftransformer.evaluations.sentences.settings import MAPS, ROWS, TOKENS, Suite
from difftransformer.models.attention.maps import attention_maps
from difftransformer.models.attention.registry import variants
from difftransformer.models.transformer import Transformer


def suite(**changes: Any) -> Suite:
    return Suite(kind="sentences", **changes)


def context_of(
    dataset: PackedDataset, details: Path, variant: str, positions: int = 256
) -> EvalContext:
    config = replace(
        model_config(dataset.manifest.vocab_size, positions),
        attention={"variant": variant, "head_dim": 4},
    )
    model = Transformer.build(config, "sdpa", 0).eval()
    return replace(eval_context(scorer(model), dataset), details=details)


def test_tokens_of_every_occurrence_of_a_word_are_marked() -> None:
    sentence = Sentence("Al saw Bo. Al hid", relevant="Bo", distractor="Al")
    offsets = [(0, 1), (1, 2), (2, 6), (6, 9), (9, 10), (10, 13), (13, 17)]
    labels = word_labels(sentence, offsets)
    assert labels == [
        "distractor",
        "distractor",
        "other",
        "relevant",
        "other",
        "distractor",
        "other",
    ]


@pytest.mark.parametrize("name", SENTENCES)
def test_every_sentence_has_its_words(english: PackedDataset, name: str) -> None:
    sentence = SENTENCES[name]
    assert sentence.text.count(sentence.relevant) == 1
    assert sentence.text.count(sentence.distractor) == (2 if name.startswith("object") else 1)
    encoding = encode(open_tokenizer(english), sentence.text)
    words = word_labels(sentence, encoding.offsets)
    for word in ("relevant", "distractor"):
        marked = "".join(
            sentence.text[start:stop]
            for (start, stop), label in zip(encoding.offsets, words, strict=True)
            if label == word
        )
        assert getattr(sentence, word) in marked


@pytest.mark.parametrize("variant", variants())
def test_shares_follow_from_the_stored_attention(
    english: PackedDataset, tmp_path: Path, variant: str
) -> None:
    context = context_of(english, tmp_path, variant)
    metrics = metrics_of(measure(suite(), context))
    rows, records = load_file(tmp_path / ROWS), json.loads((tmp_path / TOKENS).read_text())
    maps = load_file(tmp_path / MAPS)
    assert rows.keys() == records.keys() == SENTENCES.keys()
    for name, record in records.items():
        weights = rows[name].double().numpy()
        last = maps[name][:, :, -1].float()
        torch.testing.assert_close(last, rows[name], atol=2e-3, rtol=2e-3)
        assert maps[name].shape == (*last.shape, last.shape[-1])
        assert weights.shape[-1] == len(record["tokens"]) == len(record["words"])
        marked = np.array(record["words"]) == "distractor"
        sums = np.abs(weights).sum(-1)
        shares = weights[..., marked].sum(-1) / np.where(sums > 0, sums, 1.0)  # tda leaves zeros
        assert metrics[f"{name}_distractor"] == pytest.approx(shares.mean())
        assert metrics[f"{name}_distractor_lowest"] == pytest.approx(shares.min())


def test_stored_attention_is_the_last_row_of_the_map(
    english: PackedDataset, tmp_path: Path
) -> None:
    context = context_of(english, tmp_path, "diff_v1")
    measure(suite(sentences=["object_1"]), context)
    dataset = context.dataset
    text = encode(open_tokenizer(dataset), SENTENCES["object_1"].text).ids
    ids = torch.tensor([[dataset.manifest.tokenizer.eos_id, *text]])
    model = context.scorer.model
    with torch.no_grad():
        layer, x = model.layers[0], model.embedding(ids)
        rope = model._rotary.span(0, ids.shape[1], ids.device)
        maps = attention_maps(layer.attention, layer.attention_norm(x), rope)
    torch.testing.assert_close(load_file(tmp_path / ROWS)["object_1"][0], maps[0, :, -1])


def test_sentences_that_do_not_fit_are_named(english: PackedDataset, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"object_1 has \d+ tokens, .* max_positions 8: remove it"
    ):
        measure(suite(), context_of(english, tmp_path, "softmax", 8))
    assert "not sentences" in (suite().incompatibility(64, RECALL) or "")
    with pytest.raises(ValueError, match="unknown sentence 'object_3'; did you mean"):
        suite(sentences=["object_3"])
