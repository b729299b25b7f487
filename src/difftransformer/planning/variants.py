"""What a row of the table of variants is, by its sizes alone."""

from difftransformer.config.artifact_slices import Fact
from difftransformer.config.model import ModelConfig
from difftransformer.config.run import RunSlice
from difftransformer.models.flops import training_flops
from difftransformer.models.footprint import cached_numbers
from difftransformer.models.transformer import count_parameters

CACHE_BYTES = 2
"""Bytes of a number in the cache: 16 bits, as models are served."""


def variant_facts(slice: RunSlice, *, timed: bool) -> dict[str, Fact]:
    """Parameters, bytes of KV cache and operations of training a token.

    ``timed`` says whether the throughput job times it.
    """
    model = slice.model
    return {
        "parameters": count_parameters(model),
        "ffn_dim": model.ffn_dim,
        "kv_bytes": CACHE_BYTES * cached_numbers(model),
        "training_flops": training_flops(model, slice.training.seq_len),
        "timed": timed,
    }


def mechanism(model: ModelConfig) -> dict[str, Fact]:
    """Which attention a row has, and DIFF V2's form of lambda, on which its bounds depend."""
    return {
        "variant": model.attention["variant"],
        "lambda_form": model.attention.get("lambda_form"),
    }
