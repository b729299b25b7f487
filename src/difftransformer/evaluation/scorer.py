"""A trained model as the suites use it: losses of targets, and first choices at positions.

Shapes: B = sequences, T = positions, R = chosen positions, D = d_model, V = vocabulary,
L = layers, H = heads, S = positions of a row of attention.
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
    """What the last of S tokens does in the L layers that have attention, on the CPU.

    Attributes:
        rows: Its weights, float32 [L, H, S].
        values: What they are of, float32 [L, G, S, e], of G value heads.
    """

    rows: Tensor
    values: Tensor


class Scorer:
    """Runs a model without gradients, never holding logits of more than it is asked for.

    In inference mode, which makes a token of a small model a tenth faster than `no_grad`; what is
    returned can take part in no gradient.

    Args:
        model: In evaluation mode, on ``device``.
        device: Where batches are computed.
        precision: "fp32", or "bf16" for autocast.
    """

    def __init__(self, model: LanguageModel, device: torch.device, precision: str = "fp32") -> None:
        self._model, self.device, self._precision = model, device, precision
        self._cache_checked = False

    @property
    def model(self) -> Transformer:
        """The model, which is ours wherever more is asked of it than losses and choices."""
        return cast("Transformer", self._model)

    def new_cache(self, capacity: int) -> TruncatableCache:
        """Return an empty cache of the model's for at most ``capacity`` positions.

        Raises:
            ConfigError: A model from elsewhere cannot go on from one.
        """
        if not isinstance(self._model, HFCausalLM):
            return PrefixCache(capacity)
        from difftransformer.evaluation.pretrained_cache import GrowingCache, require_parts

        if not self._cache_checked:
            require_parts(self._model)
            self._cache_checked = True
        return GrowingCache()

    @torch.inference_mode()
    def losses(self, windows: Tensor, chunk: int) -> Tensor:
        """Loss in nats of each target, ``windows[:, 1:]``, [B, T + 1] -> float64 [B, T], CPU.

        The logits of ``chunk`` positions exist at one time.
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
        """Return the states after the last norm, [B, T] -> [B, T, D], where the model is.

        The keys and values of the T positions are appended to the cache, if there is one.
        """
        with autocast(self.device, self._precision):
            return self._model.hidden_states(tokens.to(self.device), cache=cache)

    @torch.inference_mode()
    def greedy_tokens(self, tokens: Tensor, positions: Sequence[int]) -> Tensor:
        """First choice of V tokens for what follows R positions of [B, T], int64 [B, R], CPU."""
        return self._logits(self.hidden_states(tokens)[:, list(positions)]).argmax(-1).cpu()

    @torch.inference_mode()
    def next_token(self, tokens: Sequence[int], cache: Cache) -> int:
        """First choice for what follows the last of T tokens; all are appended to the cache."""
        return int(
            self._logits(self.hidden_states(torch.tensor([tokens]), cache)[:, -1]).argmax(-1)
        )

    @torch.inference_mode()
    def next_log_probs(self, tokens: Sequence[int], cache: Cache) -> Tensor:
        """Log-probabilities of what follows the last of T tokens, float32 [V], on the CPU.

        All tokens are appended to the cache, as in `next_token`.
        """
        return self._log_probs(self.hidden_states(torch.tensor([tokens]), cache)[0, -1]).cpu()

    def log_probs(self, tokens: Tensor, chunk: int) -> Iterator[Tensor]:
        """Yield log-probabilities of what follows each position of [B, T], in order, [C, V].

        In float32 and where the model is; C is ``chunk``, of the last ones fewer. The logits of C
        positions exist at one time.
        """
        for hidden in torch.split(self.hidden_states(tokens).flatten(0, 1), chunk):
            yield self._log_probs(hidden)

    def prefill(self, tokens: Sequence[int], cache: Cache, chunk: int) -> None:
        """Append tokens to the cache, ``chunk`` positions at a time."""
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
        """Attention of the last of S tokens in all layers.

        ``chunk`` positions before it are computed at one time; a model from elsewhere reads all of
        its tokens at once.

        Raises:
            CheckpointError: The maps of a model from elsewhere cannot be read.
        """
        if not isinstance(self._model, HFCausalLM):
            cache = PrefixCache(len(tokens))
            self.prefill(tokens[:-1], cache, chunk)
            last = torch.tensor([tokens[-1:]], device=self.device)
            with autocast(self.device, self._precision):
                weights = [
                    row[0].float().cpu() for row in self.model.last_token_attention(last, cache)
                ]
            held = [cache.get(layer)[1][0].float().cpu() for layer in range(self._model.num_layers)]
            return LastAttention(torch.stack(weights), torch.stack(held))
        found: list[tuple[Tensor, Tensor]] = []

        def see(maps: CapturedAttention) -> None:
            rows = maps.block(maps.length - 1, maps.length).weights
            found.append((rows[0, :, 0].float().cpu(), maps.values[0].float().cpu()))

        inner = self._model.inner
        with reader(inner)(inner, see):
            self.hidden_states(torch.tensor([list(tokens)]))
        if len({(len(rows), values.shape) for rows, values in found}) > 1:
            raise_unreadable(inner, "its layers differ in their heads")
        rows, values = (torch.stack(one) for one in zip(*found, strict=True))
        return LastAttention(rows, values)
