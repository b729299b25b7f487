"""Attention of a sentence's last token, per head (arXiv 2505.16333, figures 4 and 18).

Shapes: L = layers, H = heads, S = tokens.
"""

import json
import re
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.evaluation.attention_capture import full_attention_maps
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics
from difftransformer.evaluation.generation import encode, open_tokenizer, prefix_token_ids
from difftransformer.evaluations.sentences.sentences import SENTENCES, Sentence
from difftransformer.evaluations.sentences.settings import (
    DISTRACTOR,
    MAPS,
    OTHER,
    RELEVANT,
    ROWS,
    TOKENS,
    Suite,
    share_metric,
)
from difftransformer.provenance.atomic import write_text


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return the shares of the last token's attention on the marked words of each sentence.

    Returns:
        {sentence}_relevant and {sentence}_distractor: signed sum of the attention weights on the
        tokens of the word divided by the sum of all absolute weights, mean over heads and layers;
        with suffix _lowest: the share of the head where it is lowest.

    Raises:
        CheckpointError: The attention maps of an external model cannot be read.
        ConfigError: A sentence is longer than the model's context.
        DataError: The dataset has no tokenizer.
    """
    tokenizer = open_tokenizer(context.dataset)
    start = prefix_token_ids(tokenizer, context.dataset.manifest.tokenizer.eos_id)
    metrics: Metrics = {}
    rows: dict[str, Tensor] = {}
    maps: dict[str, Tensor] = {}
    token_records: dict[str, Any] = {}
    for name in suite.sentences:
        sentence = SENTENCES[name]
        encoding = encode(tokenizer, sentence.text)
        ids = [*start, *encoding.ids]
        if len(ids) > context.scorer.model.max_positions:
            raise ConfigError(
                f"sentences: {name} has {len(ids)} tokens, but the model has max_positions "
                f"{context.scorer.model.max_positions}: remove it from `sentences`"
            )
        words = [*(OTHER for _ in start), *word_labels(sentence, encoding.offsets)]
        rows[name] = context.scorer.last_attention(ids, suite.chunk).rows
        maps[name] = full_attention_maps(context.scorer, ids)
        token_records[name] = {
            "tokens": [tokenizer.decode([token]) for token in ids],
            "words": words,
        }
        weights = rows[name].double()
        totals = weights.abs().sum(-1).clamp_min(1e-300)
        for word in (RELEVANT, DISTRACTOR):
            share = weights[..., torch.tensor([label == word for label in words])].sum(-1) / totals
            metrics[share_metric(name, word)] = float(share.mean())
            metrics[share_metric(name, word, lowest=True)] = float(share.min())
    save_file({name: row.contiguous() for name, row in rows.items()}, context.details / ROWS)
    save_file({name: full.contiguous() for name, full in maps.items()}, context.details / MAPS)
    write_text(
        context.details / TOKENS, json.dumps(token_records, indent=1, ensure_ascii=False) + "\n"
    )
    return EvalResult(metrics, {})


def word_labels(sentence: Sentence, offsets: list[tuple[int, int]]) -> list[str]:
    """Return each token's label: RELEVANT or DISTRACTOR if it overlaps that word, else OTHER."""
    marked = ((RELEVANT, sentence.relevant), (DISTRACTOR, sentence.distractor))
    spans = [
        (label, match.span())
        for label, word in marked
        for match in re.finditer(re.escape(word), sentence.text)
    ]
    return [
        next((label for label, (first, end) in spans if start < end and first < stop), OTHER)
        for start, stop in offsets
    ]
