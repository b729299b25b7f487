"""The decoder: pre-RMSNorm, SwiGLU, RoPE, no biases; independent of the attention variant.

SwiGLU (Shazeer 2020, arXiv 2002.05202) is (swish(x G) * x U) W, with G and U in one matrix.

Shapes: B = batch, T = new positions, S = all positions including cached ones, D = d_model,
F = ffn_dim, V = vocabulary.
"""

from collections.abc import Iterator
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from difftransformer.errors import ConfigError
from difftransformer.models.activation_checkpointing import activation_checkpoint
from difftransformer.models.attention.base import Cache
from difftransformer.models.attention.registry import attention_class
from difftransformer.models.autograd import no_double_backward, use_custom_backward
from difftransformer.models.cache import PrefixCache
from difftransformer.models.config import AttentionConfig, ModelConfig
from difftransformer.models.documents import document_mask
from difftransformer.models.initialization import init_module
from difftransformer.models.language_model import LanguageModel
from difftransformer.models.linear import Embedding, Linear, linear
from difftransformer.models.normalization import RMSNorm
from difftransformer.models.rotary import Rope, RotaryTable


class FeedForward(nn.Module):
    """SwiGLU feed-forward block; ``gate_up_proj`` has F rows for the gate, then F rows for up."""

    def __init__(self, d_model: int, ffn_dim: int) -> None:
        super().__init__()
        self.gate_up_proj = Linear(d_model, {"gate_proj": ffn_dim, "up_proj": ffn_dim})
        self.down_proj = Linear(ffn_dim, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output, [B, T, D], of its input [B, T, D]."""
        out: Tensor = self.down_proj(swiglu(self.gate_up_proj(x)))
        return out


def swiglu(gate_up: Tensor) -> Tensor:
    """Return swish(gate) * up, [..., F], for an input [..., 2F] of gate followed by up."""
    if use_custom_backward(gate_up):
        out: Tensor = _SwiGLU.apply(gate_up)  # type: ignore[no-untyped-call]
        return out
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


class _SwiGLU(torch.autograd.Function):
    """Saves its input and swish(gate), and writes both gradients into one tensor."""

    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        swish = F.silu(gate)
        ctx.save_for_backward(gate_up, swish)
        return swish * up

    @staticmethod
    @no_double_backward
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        gate_up, swish = ctx.saved_tensors
        gate, up = gate_up.chunk(2, dim=-1)
        out = torch.empty_like(gate_up)
        gate_grad, up_grad = out.chunk(2, dim=-1)
        torch.mul(grad, swish, out=up_grad)
        torch.ops.aten.silu_backward.grad_input(grad * up, gate, grad_input=gate_grad)
        return out


class DecoderLayer(nn.Module):
    """One pre-norm decoder layer: attention and feed-forward with residual connections."""

    def __init__(
        self, config: ModelConfig, attention: AttentionConfig, layer_index: int, backend: str
    ) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.d_model, config.norm_eps)
        variant = attention_class(attention.variant)
        self.attention = variant(attention, config.d_model, layer_index, backend)
        self.ffn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.ffn = FeedForward(config.d_model, config.ffn_dim)

    def forward(self, x: Tensor, rope: Rope, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """Return the layer's output, [B, T, D]; arguments as in `Attention.forward`."""
        x = x + self.attention(self.attention_norm(x), rope, mask, cache)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class Transformer(LanguageModel):
    """A decoder-only causal language model with a configurable attention variant.

    Attributes:
        config: The settings, with head counts resolved.
        backend: Name of the attention backend.
        embedding: Token embedding, [V, D].
        lm_head: Output projection; None when it is the embedding (``tie_embeddings``).
        activation_checkpointing: Which activations the backward pass computes again: "none",
            "layer" or "selective" (see `models.activation_checkpointing`).
    """

    activation_checkpointing: str = "none"

    def __init__(self, config: ModelConfig, backend: str = "sdpa") -> None:
        """Create the modules with uninitialized weights (see `build`, `checkpoint.load_model`).

        Args:
            config: Sizes and attention variant.
            backend: A name that `kernels.choose_backend` returned.

        Raises:
            ConfigError: Invalid ``config.attention``.
            BackendError: No such backend.
        """
        super().__init__()
        self.config, attention = config, config.attention
        self.backend = backend
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(
            DecoderLayer(config, attention, index, backend) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        tied = config.tie_embeddings
        self.lm_head = None if tied else Linear(config.d_model, config.vocab_size)
        self._rotary = RotaryTable(attention.head_dim, config.rope_theta)

    @classmethod
    def build(cls, config: ModelConfig, backend: str, seed: int) -> Self:
        """Return an initialized model on the CPU; its weights depend on ``config`` and ``seed``."""
        model = cls(config, backend)
        model.init_weights(seed)
        return model

    @property
    def output_weight(self) -> Tensor:
        """Matrix [V, D] that maps hidden states to logits."""
        return self.embedding.weight if self.lm_head is None else self.lm_head.weight

    @property
    def embedding_weight(self) -> Tensor:
        """Matrix [V, D] of the token embeddings."""
        return self.embedding.weight

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary, V."""
        return self.config.vocab_size

    @property
    def max_positions(self) -> int:
        """Length of the longest sequence that the model accepts, in tokens."""
        return self.config.max_positions

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return self.config.num_layers

    def hidden_states(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states after the final norm.

        Args:
            tokens: [B, T] ids, or [B, T, D] embeddings.
            positions: [T] or [B, T] rotary positions; None: they continue after the cache, or
                restart at 0 in each document.
            cache: Keys and values of earlier positions; these T are appended.
            mask: bool [B or 1, 1, T, S], True = may attend; None is the causal mask.
            segment_ids: [B or 1, T] integers, the document of each position of packed rows:
                attention stays within a document. Excludes ``mask`` and ``cache``.

        Returns:
            [B, T, D].

        Raises:
            ConfigError: No position, more than ``max_positions`` (per document if packed), or
                invalid ``segment_ids``.
        """
        if not tokens.shape[1]:
            raise ConfigError("a sequence has no positions: pass at least one token")
        past = cache.get_seq_length() if cache is not None else 0
        length = past + tokens.shape[1]
        if segment_ids is not None:
            B, T = tokens.shape[:2]
            mask = document_mask(segment_ids, (B, T), mask, cache)
            if length > self.config.max_positions:  # only then, since it waits for the GPU
                length = int(mask.sum(dim=-1).max())
        self._check_length(length)
        if positions is not None:
            rope = self._rotary.at(positions)
        elif segment_ids is not None and mask is not None:
            rope = self._rotary.within(mask)
        else:
            rope = self._rotary.span(past, tokens.shape[1], tokens.device)
        x = self._residual_stream(tokens)
        # With a cache, a layer that is computed again would append to it a second time.
        mode = self.activation_checkpointing
        checkpointed = mode != "none" and cache is None and torch.is_grad_enabled()
        for layer in self.layers:
            if checkpointed:
                x = activation_checkpoint(layer, mode, x, rope, mask, cache)
            else:
                x = layer(x, rope, mask, cache)
        out: Tensor = self.norm(x)
        return out

    def forward(
        self,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        mask: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the logits [B, T, V]; arguments as for `hidden_states`."""
        hidden = self.hidden_states(
            tokens, positions=positions, cache=cache, mask=mask, segment_ids=segment_ids
        )
        return linear(hidden, self.output_weight)

    @torch.no_grad()
    def last_token_attention(self, token: Tensor, cache: PrefixCache) -> Iterator[Tensor]:
        """Process one more token and yield its signed attention weights in each layer, [B, H, S].

        Only one row per head is computed at a time. The token's keys and values are appended to the
        cache.

        Args:
            token: [B, 1] ids.
            cache: Keys and values of all earlier positions.

        Raises:
            ConfigError: More positions than ``max_positions``.
        """
        past = cache.get_seq_length()
        self._check_length(past + 1)
        rope = self._rotary.span(past, 1, token.device)
        x = self._residual_stream(token)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, DecoderLayer)
            normalized = layer.attention_norm(x)
            x = layer(x, rope, None, cache)
            q, _, _, extra = layer.attention.project(normalized, rope)
            yield layer.attention.attention_weights(q, cache.get(index)[0], extra)[:, :, 0]

    def init_weights(self, seed: int) -> None:
        """Initialize all weights by ``config.initializer`` (see `models.initialization`).

        Projections back into the residual stream are divided by sqrt(2 num_layers), so that its
        variance does not grow with depth (GPT-2, section 2.3).
        """
        for name, module in self.named_modules():
            self.init_module(name, module, seed)

    def init_module(self, name: str, module: nn.Module, seed: int) -> None:
        """Initialize the weights of one unsharded module on the CPU by ``config.initializer``."""
        init_module(
            name,
            module,
            seed,
            std=None if self.config.initializer == "fan_in" else self.config.init_std,
            residual_scale=(2 * self.config.num_layers) ** -0.5,
            embedding_std=self.config.embedding_std,
        )

    def _residual_stream(self, tokens: Tensor) -> Tensor:
        """Embed [B, T] ids in the precision of the residual stream: [B, T, D]."""
        x: Tensor = tokens if tokens.dim() == 3 else self.embedding(tokens)
        device = x.device.type
        if not torch.is_autocast_enabled(device):
            return x
        fp32 = self.config.residual_in_fp32
        return x.to(torch.float32 if fp32 else torch.get_autocast_dtype(device))

    def _check_length(self, length: int) -> None:
        if length > self.config.max_positions:
            raise ConfigError(
                f"a sequence of {length} positions is longer than model.max_positions "
                f"{self.config.max_positions}; shorten it or raise model.max_positions"
            )
