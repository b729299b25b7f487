"""llama.cpp itself, answering in float32."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor


def serve(path: Path) -> Any:
    """Open a GGUF file."""
    xllamacpp = pytest.importorskip(
        "xllamacpp", reason="llama.cpp is not installed: pip install xllamacpp"
    )
    expected = xllamacpp.CommonParams()
    expected.model.path = str(path)
    expected.hostnames = ["127.0.0.1"]
    expected.n_ctx, expected.n_parallel, expected.cpuparams.n_threads = 64, 1, 1
    expected.cache_type_k = expected.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    expected.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    expected.warmup, expected.verbosity = False, -1
    return xllamacpp.Server(expected)


def ask(server: Any, path: str, **question: Any) -> Any:
    """Ask over its own interface of HTTP, on loopback."""
    request = urllib.request.Request(
        f"{server.listening_address}/{path}", json.dumps(question).encode()
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def log_probabilities(server: Any, tokens: list[int], vocab_size: int, letter: int) -> Tensor:
    """Of what follows the tokens, by token, float64, before any bias.

    It says none where it chooses an end or a part of a character, so it is made to choose a letter.
    """
    request = {"prompt": tokens, "n_predict": 1, "temperature": 0, "n_probs": vocab_size}
    response = ask(server, "completion", **request, logit_bias=[[letter, 1000]])
    (position,) = response["completion_probabilities"]
    actual = {candidate["id"]: candidate["logprob"] for candidate in position["top_logprobs"]}
    return torch.tensor([actual[token] for token in range(vocab_size)], dtype=torch.float64)
