"""Runs models for evaluations: losses of targets, greedy tokens, attention weights.

Shapes: B = sequences, T = positions, R = chosen positions, D = d_model, V = vocabulary,
L = layers, H = heads, S = keys that a query sees.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor

from difftransformer.convert.hf_attention.maps import CapturedAttention
from difftransformer.convert.hf_attention.registry import reader
from difftransformer.convert.hf_attention.softmax import raise_unreadable
from difftransformer.models.attention.base import Cache
from difftransformer.models.cache import PrefixCache, TruncatableCache
from difftransformer.models.device import autocast
from difftransformer.models.language_model import HFCausalLM, LanguageModel
from difftransformer.models.loss import token_losses
from difftransformer.models.transformer import Transformer


class LastAttention(NamedTuple):
    """Attention weights of the last of S tokens in all L layers with attention, on the CPU.

    Attributes:
        rows: Attention weights, float32 [L, H, S].
        values: Values of all tokens, float32 [L, G, S, e], with G value heads of width e.
    """

    rows: Tensor
    values: Tensor


class Scorer:
    """Runs a model in inference mode, and computes logits only for the positions that need them.

    Inference mode is a tenth faster per token of a small model than `no_grad`. Gradients cannot
    flow through the returned tensors.

    Args:
        model: A model in evaluation mode, on ``device``.
        device: Device that batches are moved to.
        precision: "fp32", or "bf16" for autocast.
    """

    def __init__(self, model: LanguageModel, device: torch.device, precision: str = "fp32") -> None:
        self._model, self.device, self._precision = model, device, precision
        self._cache_checked = False

    @property
    def model(self) -> Transformer:
        """The model; an external pretrained one only has the members of `LanguageModel`."""
        return cast("Transformer", self._model)

    def new_cache(self, capacity: int) -> TruncatableCache:
        """Return an empty KV cache for at most ``capacity`` positions.

        Raises:
            ConfigError: A pretrained model cannot continue from a cached prefix.
        """
        if not isinstance(self._model, HFCausalLM):
            return PrefixCache(capacity)
        from difftransformer.evaluation.pretrained_cache import (
            TruncatableDynamicCache,
            require_prefix_caching,
        )

        if not self._cache_checked:
            require_prefix_caching(self._model)
            self._cache_checked = True
        return TruncatableDynamicCache()

    @torch.inference_mode()
    def losses(self, windows: Tensor, chunk: int) -> Tensor:
        """Return the loss of each target of windows, in nats, [B, T + 1] -> float64 [B, T].

        The result is on the CPU. Logits are computed for ``chunk`` positions at a time.
        """
        windows = windows.to(self.device)
        targets = windows[:, 1:]
        with autocast(self.device, self._precision):
            hidden = self._model.hidden_states(windows[:, :-1])
            flat = token_losses(
                hidden.flatten(0, 1), self._model.output_weight, targets.flatten(), chunk
            )
        return flat.view(targets.shape).double().cpu()

    @torch.inference_mode()
    def hidden_states(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the final hidden states (after the last norm), [B, T] -> [B, T, D], on the device.

        The keys and values of the T positions are appended to the cache, if there is one.
        """
        with autocast(self.device, self._precision):
            return self._model.hidden_states(tokens.to(self.device), cache=cache)

    @torch.inference_mode()
    def greedy_tokens(self, tokens: Tensor, positions: Sequence[int]) -> Tensor:
        """Return the most likely next token after each of R positions, [B, T] -> int64 [B, R].

        The result is on the CPU.
        """
        return self._logits(self.hidden_states(tokens)[:, list(positions)]).argmax(-1).cpu()

    @torch.inference_mode()
    def next_token(self, tokens: Sequence[int], cache: Cache) -> int:
        """Return the most likely token after the T given ones, which are appended to the cache."""
        return int(
            self._logits(self.hidden_states(torch.tensor([tokens]), cache)[:, -1]).argmax(-1)
        )

    @torch.inference_mode()
    def next_log_probs(self, tokens: Sequence[int], cache: Cache) -> Tensor:
        """Return the log-probabilities of the next token after T given tokens, float32 [V].

        The result is on the CPU. The T tokens are appended to the cache.
        """
        return self._log_probs(self.hidden_states(torch.tensor([tokens]), cache)[0, -1]).cpu()

    def log_probs(self, tokens: Tensor, chunk: int) -> Iterator[Tensor]:
        """Yield log-probabilities of the next token at all positions of [B, T], in chunks [C, V].

        V is the vocabulary size; C is at most ``chunk``, the number of positions whose logits exist
        at one time. Chunks are in order, float32 and on the device.
        """
        for hidden in torch.split(self.hidden_states(tokens).flatten(0, 1), chunk):
            yield self._log_probs(hidden)

    def prefill(self, tokens: Sequence[int], cache: Cache, chunk: int) -> None:
        """Compute the keys and values of tokens and append them to the cache.

        ``chunk`` positions are computed at a time.
        """
        for start in range(0, len(tokens), chunk):
            self.hidden_states(torch.tensor([tokens[start : start + chunk]]), cache)

    @torch.inference_mode()
    def _log_probs(self, hidden: Tensor) -> Tensor:
        return self._logits(hidden).float().log_softmax(-1)

    def _logits(self, hidden: Tensor) -> Tensor:
        weight = self.model.output_weight
        with autocast(self.device, self._precision):
            return hidden.to(weight.dtype) @ weight.T

    @torch.inference_mode()
    def last_attention(self, tokens: Sequence[int], chunk: int) -> LastAttention:
        """Return the attention weights of the last of S tokens in all layers.

        The tokens before the last one are computed ``chunk`` positions at a time; a pretrained
        model computes all tokens at once.

        Raises:
            CheckpointError: The attention maps of a pretrained model cannot be read.
        """
        if not isinstance(self._model, HFCausalLM):
            cache = PrefixCache(len(tokens))
            self.prefill(tokens[:-1], cache, chunk)
            last = torch.tensor([tokens[-1:]], device=self.device)
            with autocast(self.device, self._precision):
                weights = [
                    row[0].float().cpu() for row in self.model.last_token_attention(last, cache)
                ]
            values = [
                cache.get(layer)[1][0].float().cpu() for layer in range(self._model.num_layers)
            ]
            return LastAttention(torch.stack(weights), torch.stack(values))
        layers: list[tuple[Tensor, Tensor]] = []

        def record(maps: CapturedAttention) -> None:
            rows = maps.block(maps.length - 1, maps.length).weights
            layers.append((rows[0, :, 0].float().cpu(), maps.values[0].float().cpu()))

        inner = self._model.inner
        with reader(inner)(inner, record):
            self.hidden_states(torch.tensor([list(tokens)]))
        if len({(len(rows), values.shape) for rows, values in layers}) > 1:
            raise_unreadable(inner, "its layers differ in their heads")
        return LastAttention(*map(torch.stack, zip(*layers, strict=True)))
