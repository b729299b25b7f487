"""Attention allocation: a needle prompt's last token attends to the answer and to noise.

The answer is generated at the last token of a needle prompt. The attention weights of each head
from there to all S positions (for DIFF the signed difference of its maps) are divided by their sum
and added up by region; shares are averaged over prompts, layers and heads. Noise is the context
without the answer; first token, answer, question and noise add up to 1.

The paper does not say how it normalizes signed maps, so both ways are measured: absolute values of
the weights, or the signed weights, whose sum is 1 - lambda for DIFF. For softmax both are equal.

Shapes: N = 2 normalizations, absolute and signed, L = layers, H = heads, S = positions,
P = prompts of a depth, D = depths, R = regions followed by noise.
"""

import json

import numpy as np
from safetensors.torch import save_file

from difftransformer.evaluation.attention_capture import full_attention_maps
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.retrieval.prompts import open_builder
from difftransformer.evaluation.retrieval.regions import Floats, label_regions, region_shares
from difftransformer.evaluation.retrieval.settings import REGIONS, NeedleSetting
from difftransformer.evaluations.attention_allocation.settings import (
    MAPS,
    MAX_MAP_TOKENS,
    PROMPT,
    ROWS,
    Suite,
    share_names,
)
from difftransformer.provenance.atomic import replacing, write_text


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return the mean shares of attention on each region of needle prompts.

    Returns:
        Metrics bos, before, answer, after, query and noise (before + after): shares over all depths
        and layers. Suffix _d{D} is for one depth, _l{L} for one layer, and _signed (before these)
        for signed instead of absolute weights. Metric prompts is the number of prompts. Per-item
        scores of shares are by haystack, since prompts of all depths share a haystack.

    Raises:
        ConfigError: A length has no room for the needles and the question.
        DataError: Held-out text or the tokenizer is missing.
    """
    builder = open_builder(suite, context.dataset)
    (length,) = suite.contexts
    by_prompt = []
    example = (len(suite.depths) // 2, 0)
    for index, depth in enumerate(suite.depths):
        for sample in range(suite.samples):
            prompt = builder.prompt(NeedleSetting(suite.needles, 1, length, depth), sample)
            ids = builder.token_ids(prompt.context + prompt.questions[0])
            rows = context.scorer.last_attention(ids, suite.chunk).rows.numpy().astype(np.float64)
            regions = label_regions(prompt, len(ids))
            by_prompt.append(region_shares(rows, regions))
            if (index, sample) == example:
                _save(context, ROWS, rows)
                prompt_info = {
                    "tokens": [builder.tokenizer.decode([token]) for token in ids],
                    "regions": [REGIONS[region] for region in regions],
                    "maps": len(ids) <= MAX_MAP_TOKENS,
                }
                if prompt_info["maps"]:
                    save_file(
                        {"maps": full_attention_maps(context.scorer, ids)}, context.details / MAPS
                    )
                write_text(context.details / PROMPT, json.dumps(prompt_info, indent=1) + "\n")
    shares = np.stack(by_prompt, axis=1)
    shares = shares.reshape(len(shares), len(suite.depths), suite.samples, *shares.shape[2:])
    _save(context, "shares.npy", shares)
    return _measured(suite, shares)


def _measured(suite: Suite, shares: Floats) -> EvalResult:
    """Return the means of shares [N, D, P, L, H, R]."""
    metrics: Metrics = {"prompts": len(suite.depths) * suite.samples}
    per_item = {}
    for (signed, depth, layer), names in share_names(suite.depths, shares.shape[3]).items():
        depths = slice(None) if depth is None else [suite.depths.index(depth)]
        layers = slice(None) if layer is None else [layer]
        by_prompt = shares[int(signed)][depths][:, :, layers].mean(axis=(0, 2, 3))  # [P, R]
        for name, values in zip(names, by_prompt.T, strict=True):
            metrics[name] = float(values.mean())
            per_item[name] = per_item_scores("haystacks", values)
    return EvalResult(metrics, per_item)


def _save(context: EvalContext, name: str, array: Floats) -> None:
    with replacing(context.details / name) as temporary, temporary.open("wb") as stream:
        np.save(stream, array.astype(np.float32), allow_pickle=False)
