"""Attention of the last token of a sentence, head by head (arXiv 2505.16333, figures 4 and 18).

Shapes: L = layers, H = heads, S = tokens.
"""

import json
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.evaluation.attention_capture import full_attention_maps
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics
from difftransformer.evaluation.generation import encode, open_tokenizer, opening
from difftransformer.evaluations.sentences.sentences import SENTENCES, Sentence
from difftransformer.evaluations.sentences.settings import (
    DETAILS,
    HELPS,
    MAPS,
    MISLEADS,
    OTHER,
    TOKENS,
    Suite,
    share_name,
)
from difftransformer.provenance.atomic import write_text


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Shares that the marked words of each sentence get of the last token.

    Returns:
        {sentence}_helps and {sentence}_misleads: sum of a row's weights on the tokens of the word,
        signed, over the sum of the sizes of all, mean over heads and layers; ..._lowest of the head
        that has the lowest.

    Raises:
        CheckpointError: The maps of a model from elsewhere cannot be read.
        ConfigError: A sentence is longer than the model's context.
        DataError: The dataset has no tokenizer.
    """
    tokenizer = open_tokenizer(context.dataset)
    begins = opening(tokenizer, context.dataset.manifest.tokenizer.eos_id)
    metrics: Metrics = {}
    rows: dict[str, Tensor] = {}
    maps: dict[str, Tensor] = {}
    shown: dict[str, Any] = {}
    for name in suite.sentences:
        sentence = SENTENCES[name]
        encoding = encode(tokenizer, sentence.text)
        ids = [*begins, *encoding.ids]
        if len(ids) > context.scorer.model.max_positions:
            raise ConfigError(
                f"sentences: {name} has {len(ids)} tokens, the model has max_positions "
                f"{context.scorer.model.max_positions}: leave it out of `sentences`"
            )
        words = [*(OTHER for _ in begins), *words_of(sentence, encoding.offsets)]
        rows[name] = context.scorer.last_attention(ids, suite.chunk).rows
        maps[name] = full_attention_maps(context.scorer, ids)
        shown[name] = {"tokens": [tokenizer.decode([one]) for one in ids], "words": words}
        weights = rows[name].double()
        sizes = weights.abs().sum(-1).clamp_min(1e-300)
        for word in (HELPS, MISLEADS):
            share = weights[..., torch.tensor([one == word for one in words])].sum(-1) / sizes
            metrics[share_name(name, word)] = float(share.mean())
            metrics[share_name(name, word, lowest=True)] = float(share.min())
    save_file({name: one.contiguous() for name, one in rows.items()}, context.details / DETAILS)
    save_file({name: one.contiguous() for name, one in maps.items()}, context.details / MAPS)
    write_text(context.details / TOKENS, json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    return EvalResult(metrics, {})


def words_of(sentence: Sentence, offsets: list[tuple[int, int]]) -> list[str]:
    """Marked word that each token has a part of, by the characters that it stands for."""

    def spans(word: str) -> list[tuple[int, int]]:
        found, start = [], sentence.text.find(word)
        while start >= 0:
            found.append((start, start + len(word)))
            start = sentence.text.find(word, start + 1)
        return found

    marked = {HELPS: spans(sentence.helps), MISLEADS: spans(sentence.misleads)}

    def word_of(start: int, stop: int) -> str:
        for word, places in marked.items():
            if any(start < end and begin < stop for begin, end in places):
                return word
        return OTHER

    return [word_of(start, stop) for start, stop in offsets]
