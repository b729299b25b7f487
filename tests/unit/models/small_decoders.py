"""Small decoders of transformers with random weights."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

KINDS = ("llama", "qwen2", "qwen3", "mistral", "gemma")
HEADS, WIDTH, LAYERS = 4, 8, 2


def model_of(kind: str = "llama", seed: int = 0, **settings: Any) -> Any:
    torch.manual_seed(seed)
    options = {
        "vocab_size": 48, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": 2, "head_dim": WIDTH,
        "max_position_embeddings": 64, "pad_token_id": None, "tie_word_embeddings": kind == "gemma",
    }  # fmt: skip
    config = AutoConfig.for_model(kind, **(options | settings))
    return AutoModelForCausalLM.from_config(config).eval()
