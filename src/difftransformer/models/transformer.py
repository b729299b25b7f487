"""The decoder: pre-RMSNorm, SwiGLU, RoPE, no biases, and no branch on the attention variant.

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
    """The feed-forward half of a layer; rows of ``gate_up_proj``: gate [F], up [F]."""

    def __init__(self, d_model: int, ffn_dim: int) -> None:
        super().__init__()
        self.gate_up_proj = Linear(d_model, {"gate_proj": ffn_dim, "up_proj": ffn_dim})
        self.down_proj = Linear(ffn_dim, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        out: Tensor = self.down_proj(gated(self.gate_up_proj(x)))
        return out


def gated(gate_up: Tensor) -> Tensor:
    """swish(gate) * up for [..., 2F] holding gate and up side by side: [..., F]."""
    if use_custom_backward(gate_up):
        out: Tensor = _Gated.apply(gate_up)  # type: ignore[no-untyped-call]
        return out
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


class _Gated(torch.autograd.Function):
    """Keeps its input and swish(gate), and writes both gradients into one tensor."""

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


class Layer(nn.Module):
    """One decoder layer: attention and feed-forward, each behind its norm, each added back."""

    def __init__(
        self, config: ModelConfig, attention: AttentionConfig, index: int, backend: str
    ) -> None:
        super().__init__()
        kind = attention_class(attention.variant)
        self.attention_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attention = kind(attention, config.d_model, index, backend)
        self.ffn_norm = RMSNorm(config.d_model, config.norm_eps)
        self.ffn = FeedForward(config.d_model, config.ffn_dim)

    def forward(self, x: Tensor, rope: Rope, mask: Tensor | None, cache: Cache | None) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        x = x + self.attention(self.attention_norm(x), rope, mask, cache)
        out: Tensor = x + self.ffn(self.ffn_norm(x))
        return out


class Transformer(LanguageModel):
    """A causal language model.

    Attributes:
        config: The settings, with those of attention resolved to concrete head counts.
        backend: Name of the attention backend.
        embedding: Token embedding, [V, D].
        lm_head: Output projection; None when it is the embedding (``tie_embeddings``).
        activation_checkpointing: Which activations the backward pass computes again: "none",
            "layer" or "selective" (see `models.activation_checkpointing`).
    """

    activation_checkpointing: str = "none"

    def __init__(self, config: ModelConfig, backend: str = "sdpa") -> None:
        """Make the modules; their weights are undefined (see `build` and `checkpoint.load_model`).

        Args:
            config: Sizes and attention variant.
            backend: A name that `kernels.choose_backend` settled.

        Raises:
            ConfigError: ``config.attention`` cannot be used.
            BackendError: no such backend.
        """
        super().__init__()
        self.config, attention = config, config.attention
        self.backend = backend
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(
            Layer(config, attention, index, backend) for index in range(config.num_layers)
        )
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        tied = config.tie_embeddings
        self.lm_head = None if tied else Linear(config.d_model, config.vocab_size)
        self._rotary = RotaryTable(attention.head_dim, config.rope_theta)

    @classmethod
    def build(cls, config: ModelConfig, backend: str, seed: int) -> Self:
        """Return a model on the CPU whose weights depend on ``config`` and ``seed`` alone."""
        model = cls(config, backend)
        model.init_weights(seed)
        return model

    @property
    def output_weight(self) -> Tensor:
        """[V, D] matrix that maps hidden states to logits."""
        return self.embedding.weight if self.lm_head is None else self.lm_head.weight

    @property
    def embedding_weight(self) -> Tensor:
        """[V, D] matrix of the tokens."""
        return self.embedding.weight

    @property
    def vocab_size(self) -> int:
        """V, the tokens the model can read and choose from."""
        return self.config.vocab_size

    @property
    def max_positions(self) -> int:
        """Longest context of the model."""
        return self.config.max_positions

    @property
    def num_layers(self) -> int:
        """Number of decoder blocks."""
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
        """Hidden states after the final norm.

        Args:
            tokens: [B, T] ids, or [B, T, D] embeddings.
            positions: [T] or [B, T] rotary positions; None counts on from the cache, or from 0 in
                each document.
            cache: Keys and values of earlier positions; these T are appended.
            mask: bool [B or 1, 1, T, S], True = may attend; None is causal attention to all.
            segment_ids: [B or 1, T] integers, the document of each position where several are
                packed in a row: attention stays within a document. Excludes ``mask`` and ``cache``.

        Returns:
            [B, T, D].

        Raises:
            ConfigError: no position, more than ``max_positions``, in a document where there are
                several, or ``segment_ids`` that cannot be used.
        """
        if not tokens.shape[1]:
            raise ConfigError("a sequence has no positions: give one token at least")
        past = cache.get_seq_length() if cache is not None else 0
        length = past + tokens.shape[1]
        if segment_ids is not None:
            B, T = tokens.shape[:2]
            mask = document_mask(segment_ids, (B, T), mask, cache)
            if length > self.config.max_positions:  # else there is no need to wait for a GPU
                length = int(mask.sum(dim=-1).max())
        self._require_room(length)
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
        """Logits [B, T, V] of [B, T] tokens; arguments as for `hidden_states`."""
        hidden = self.hidden_states(
            tokens, positions=positions, cache=cache, mask=mask, segment_ids=segment_ids
        )
        return linear(hidden, self.output_weight)

    @torch.no_grad()
    def last_token_attention(self, token: Tensor, cache: PrefixCache) -> Iterator[Tensor]:
        """Yield each layer's weights of one more token over all S positions, [B, H, S], signed.

        Memory is that of one layer's row: the positions before lie in the cache, which is given
        this token's keys and values.

        Args:
            token: [B, 1] ids.
            cache: Keys and values of every position before.

        Raises:
            ConfigError: more positions than ``max_positions``.
        """
        past = cache.get_seq_length()
        self._require_room(past + 1)
        rope = self._rotary.span(past, 1, token.device)
        x = self._residual_stream(token)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            normalized = layer.attention_norm(x)
            x = layer(x, rope, None, cache)
            q, _, _, extra = layer.attention.project(normalized, rope)
            yield layer.attention.attention_weights(q, cache.get(index)[0], extra)[:, :, 0]

    def init_weights(self, seed: int) -> None:
        """Draw all weights as ``config.initializer`` says (see `initialization`).

        Projections back into the residual stream are divided by sqrt(2 num_layers), so that its
        variance does not grow with depth (GPT-2, section 2.3).
        """
        for name, module in self.named_modules():
            self.init_module(name, module, seed)

    def init_module(self, name: str, module: nn.Module, seed: int) -> None:
        """Draw the weights of one module, whose parameters are whole and on the CPU."""
        init_module(
            name,
            module,
            seed,
            std=None if self.config.initializer == "fan_in" else self.config.init_std,
            residual=(2 * self.config.num_layers) ** -0.5,
            embedding_std=self.config.embedding_std,
        )

    def _residual_stream(self, tokens: Tensor) -> Tensor:
        """Embed [B, T] ids, in the precision that the layers add to: [B, T, D]."""
        x: Tensor = tokens if tokens.dim() == 3 else self.embedding(tokens)
        device = x.device.type
        if not torch.is_autocast_enabled(device):
            return x
        full = self.config.residual_in_fp32
        return x.to(torch.float32 if full else torch.get_autocast_dtype(device))

    def _require_room(self, length: int) -> None:
        if length > self.config.max_positions:
            raise ConfigError(
                f"a sequence of {length} positions is longer than model.max_positions "
                f"{self.config.max_positions}; shorten it or raise model.max_positions"
            )
