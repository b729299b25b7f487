"""Small models of ours with random weights, and the tokenizers that go with them."""

from typing import Any

import torch

from difftransformer.models.config import ModelConfig
from difftransformer.models.transformer import Transformer


def with_gains(attention: dict[str, Any], seed: int, **sizes: Any) -> Transformer:
    """A model whose gains of norms are not one, so that a test sees them."""
    options = {
        "vocab_size": 61, "d_model": 48, "num_layers": 3, "ffn_dim": 40, "max_positions": 32,
        "rope_theta": 500.0, "embedding_std": 0.1,
    }  # fmt: skip
    config = ModelConfig(**{**options, **sizes, "attention": attention})
    torch.manual_seed(seed)
    model = Transformer.build(config, "sdpa", seed=seed)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


def byte_level(vocab_size: int, texts: list[str], end: str, *, alphabet: bool) -> Any:
    """A tokenizer as `train_tokenizer` makes it, of all bytes or of those in the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[end],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
