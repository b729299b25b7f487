"""A trained model as the suites use it: losses of targets, and first choices at positions.

Shapes: B = sequences, T = positions, R = chosen positions, D = d_model, V = vocabulary,
L = layers, H = heads, S = positions of a row of attention.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from difftransformer.config.model import ModelConfig
from difftransformer.models.attention.base import Cache
from difftransformer.models.cache import PrefixCache
from difftransformer.models.device import autocast
from difftransformer.models.loss import token_losses


class LanguageModel(Protocol):
    """What a suite needs of a model; `difftransformer.models.transformer.Transformer` has it."""

    @property
    def config(self) -> ModelConfig:
        """Sizes; `vocab_size` and `max_positions` bound what the model can read."""

    @property
    def output_weight(self) -> Tensor:
        """Output matrix [V, D]."""

    def hidden_states(self, tokens: Tensor, *, cache: Cache | None = None) -> Tensor:
        """Tokens [B, T] -> states after the last norm [B, T, D]; they go on behind the cache."""

    def attention_rows(self, token: Tensor, cache: PrefixCache) -> Iterator[Tensor]:
        """Weights [B, H, S] of one more token in each layer; see `Transformer.attention_rows`."""


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
        self.model, self.device, self._precision = model, device, precision

    @property
    def vocab_size(self) -> int:
        """V, the tokens the model can read and choose from."""
        return self.model.config.vocab_size

    @property
    def max_positions(self) -> int:
        """Longest context of the model."""
        return self.model.config.max_positions

    @torch.inference_mode()
    def losses(self, windows: Tensor, chunk: int) -> Tensor:
        """Loss in nats of each target of windows [B, T + 1], on the CPU, float64 [B, T].

        Args:
            windows: Token ids; targets are ``windows[:, 1:]``.
            chunk: Positions whose logits exist at one time.
        """
        windows = windows.to(self.device)
        targets = windows[:, 1:]
        with autocast(self.device, self._precision):
            hidden = self.model.hidden_states(windows[:, :-1])
            flat = token_losses(
                hidden.flatten(0, 1), self.model.output_weight, targets.flatten(), chunk
            )
        return flat.view(targets.shape).double().cpu()

    @torch.inference_mode()
    def states(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the states after the last norm, [B, T] -> [B, T, D], where the model is.

        Args:
            tokens: Token ids.
            cache: Where the keys and values of the T positions are appended; None: nowhere.
        """
        with autocast(self.device, self._precision):
            if cache is None:
                return self.model.hidden_states(tokens.to(self.device))
            return self.model.hidden_states(tokens.to(self.device), cache=cache)

    @torch.inference_mode()
    def choices(self, tokens: Tensor, positions: Sequence[int]) -> Tensor:
        """First choice among all V tokens for what follows each position, int64 [B, R], CPU.

        Args:
            tokens: Token ids [B, T].
            positions: R positions below T.
        """
        with autocast(self.device, self._precision):
            hidden = self.model.hidden_states(tokens.to(self.device))[:, list(positions)]
            return self._logits(hidden).argmax(-1).cpu()

    @torch.inference_mode()
    def next_choice(self, tokens: Sequence[int], cache: Cache) -> int:
        """First choice for what follows the last token; all are appended to the cache.

        Args:
            tokens: T token ids that go on behind the cache.
            cache: Keys and values of everything before, for a batch of one.
        """
        with autocast(self.device, self._precision):
            new = torch.tensor([tokens], device=self.device)
            hidden = self.model.hidden_states(new, cache=cache)[:, -1]
            return int(self._logits(hidden).argmax(-1))

    @torch.inference_mode()
    def read(self, tokens: Sequence[int], cache: Cache, chunk: int) -> None:
        """Append tokens to the cache, ``chunk`` positions at a time."""
        with autocast(self.device, self._precision):
            for start in range(0, len(tokens), chunk):
                new = torch.tensor([tokens[start : start + chunk]], device=self.device)
                self.model.hidden_states(new, cache=cache)

    @torch.inference_mode()
    def next_log_probabilities(self, tokens: Sequence[int], cache: Cache) -> Tensor:
        """Log-probabilities of what follows the last token, float32 [V], on the CPU.

        Args:
            tokens: T token ids that go on behind the cache, to which they are appended.
            cache: Keys and values of everything before, for a batch of one.
        """
        with autocast(self.device, self._precision):
            new = torch.tensor([tokens], device=self.device)
            logits = self._logits(self.model.hidden_states(new, cache=cache)[0, -1])
        return logits.float().log_softmax(-1).cpu()

    def _logits(self, hidden: Tensor) -> Tensor:
        weight = self.model.output_weight
        return hidden.to(weight.dtype) @ weight.T

    @torch.inference_mode()
    def last_rows(self, tokens: Sequence[int], chunk: int) -> Tensor:
        """Attention weights of the last of S tokens in all layers, float32 [L, H, S], on the CPU.

        Args:
            tokens: S token ids.
            chunk: Positions computed at one time.
        """
        cache = PrefixCache(len(tokens))
        self.read(tokens[:-1], cache, chunk)
        last = torch.tensor([tokens[-1:]], device=self.device)
        with autocast(self.device, self._precision):
            rows = [row[0].float().cpu() for row in self.model.attention_rows(last, cache)]
        return torch.stack(rows)
