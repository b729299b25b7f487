"""The decoder: pre-RMSNorm, SwiGLU, RoPE, no biases, and no branch on the attention variant.

Shapes: B = batch, T = positions, S = positions with a cache, D = d_model, F = ffn_dim, V = vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.config.model import AttentionConfig, ModelConfig
from difftransformer.models.attention.base import Cache
from difftransformer.models.attention.registry import attention_class, configure
from difftransformer.models.rotary import Rotation, rotation


class FeedForward(nn.Module):
    """SwiGLU: (swish(x G) * x U) W (Shazeer 2020), gate and up in one matrix."""

    def __init__(self, d_model: int, ffn_dim: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(d_model, 2 * ffn_dim, bias=False)
        self.down_proj = nn.Linear(ffn_dim, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, T, D] to [B, T, D]."""
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        out: Tensor = self.down_proj(F.silu(gate) * up)
        return out


class Layer(nn.Module):
    """One decoder layer: attention and feed-forward, each behind its norm, each added back."""

    def __init__(self, config: ModelConfig, attention: AttentionConfig, index: int, backend: str):
        super().__init__()
        kind = attention_class(attention.variant)
        self.attention_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.attention = kind(attention, config.d_model, index, config.norm_eps, backend)
        self.ffn_norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.ffn = FeedForward(config.d_model, config.ffn_dim)

    def forward(
        self, x: Tensor, by: Rotation, cache: Cache | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Map [B, T, D] to [B, T, D]."""
        x = x + self.attention(self.attention_norm(x), by, cache, mask)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class Transformer(nn.Module):
    """A causal language model.

    Args:
        config: Sizes and attention variant; attention's head counts are filled in.
        backend: "eager", "sdpa" or "flash_attn", see `kernels.choose_backend`.

    Raises:
        ConfigError: If `config.attention` cannot be used.
    """

    def __init__(self, config: ModelConfig, backend: str = "sdpa") -> None:
        super().__init__()
        attention = configure(config.attention, config.d_model)
        resolved: dict[str, Any] = attention.model_dump(mode="json")
        self.config = config.model_copy(update={"attention": resolved})
        self.head_dim, self.backend = attention.head_dim, backend
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(
            Layer(config, attention, index, backend) for index in range(config.num_layers)
        )
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_eps)
        self.lm_head = (
            None
            if config.tie_embeddings
            else nn.Linear(config.d_model, config.vocab_size, bias=False)
        )

    @classmethod
    def build(cls, config: ModelConfig, backend: str, seed: int) -> "Transformer":
        """Return a model with weights drawn from ``seed`` alone."""
        model = cls(config, backend)
        model.init_weights(torch.Generator().manual_seed(seed))
        return model

    @property
    def output_weight(self) -> Tensor:
        """[V, D] matrix of the logits."""
        return self.embedding.weight if self.lm_head is None else self.lm_head.weight

    def hidden_states(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the final normed hidden states.

        Args:
            tokens: [B, T] ids.
            positions: [T] or [B, T]; None is 0..T-1.
            cache: Keys and values of earlier positions, appended to.
            mask: [B, 1, T, S] bool, True where a query may look; None is causal.

        Returns:
            [B, T, D].
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        by = rotation(positions, self.head_dim, self.config.rope_theta)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, by, cache, mask)
        out: Tensor = self.norm(x)
        return out

    def forward(self, tokens: Tensor, **options: Any) -> Tensor:
        """Return logits [B, T, V] for [B, T] tokens; options as for `hidden_states`."""
        return F.linear(self.hidden_states(tokens, **options), self.output_weight)

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Initialise all weights as `config.initializer` says.

        Projections back into the residual stream are divided by sqrt(2 num_layers), so that its
        variance does not grow with depth (GPT-2).
        """
        config = self.config
        into_stream = (2 * config.num_layers) ** -0.5
        fan_in = config.initializer == "fan_in"
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                std = module.in_features**-0.5 if fan_in else config.init_std
                if name.endswith(("o_proj", "down_proj")):
                    std *= into_stream
                nn.init.normal_(module.weight, std=std, generator=generator)
        std = config.embedding_std if fan_in else config.init_std
        nn.init.normal_(self.embedding.weight, std=std, generator=generator)
        for layer in self.layers:
            layer.attention.init_own_parameters(generator)


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters, built without memory on the meta device."""
    with torch.device("meta"):
        model = Transformer(config)
    return sum(parameter.numel() for parameter in model.parameters())
