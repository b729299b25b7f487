"""The loss of a batch: cross-entropy of hidden states, without ever holding all logits.

Shapes: B = sequences, T = positions, D = d_model, V = vocabulary.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from difftransformer.config.training import TrainingConfig
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import ConfigError
from difftransformer.models.documents import segment_ids_from_eos
from difftransformer.models.loss import chunked_cross_entropy, token_losses

HiddenStates = Callable[[Tensor], Tensor]
"""Tokens [B, T] -> hidden states [B, T, D]."""


def document_end(config: TrainingConfig, dataset: PackedDataset) -> int | None:
    """Return the token that closes each document for ``document_mask``; None without it.

    Raises:
        ConfigError: The dataset has no documents that a token ends.
    """
    if not config.document_mask:
        return None
    end = dataset.manifest.tokenizer.eos_id
    if end is None:
        raise ConfigError(
            f"training.document_mask: no token ends the documents of {dataset.folder}: leave it "
            "out, or train on packed text"
        )
    return end


def within_documents(states: Callable[..., Tensor], end: int | None) -> HiddenStates:
    """Return ``states`` of tokens whose attention stays within documents that ``end`` closes.

    Args:
        states: `Transformer.hidden_states`, compiled or not.
        end: Token that closes a document; None: ``states`` themselves.
    """
    if end is None:
        return states

    def separated(tokens: Tensor) -> Tensor:
        return states(tokens, segment_ids=segment_ids_from_eos(tokens, end))

    return separated


LM_WEIGHT = 0.5
"""Weight of the targets that are no answers, in rows with answer positions."""


class Objective:
    """What training lowers and validation measures.

    Packed text: the mean cross-entropy of all targets. Row datasets (those with answer positions):
    ``mean CE(answer targets) + LM_WEIGHT * mean CE(all other targets)``; the
    language-model part leaves the answers out, so that each target counts once.

    Args:
        seq_len: T, targets of one sequence.
        chunk: Positions whose logits exist at one time.
        answers: Indices of the answers among the T targets; None for packed text.
        device: Where batches live.
        compiled: Whether the loss is compiled, on a GPU.
        end: Token that closes a document where attention stays within documents, else None.
    """

    def __init__(
        self,
        *,
        seq_len: int,
        chunk: int,
        answers: Sequence[int] | None,
        device: torch.device,
        compiled: bool = False,
        end: int | None = None,
    ) -> None:
        self._chunk, self.end = chunk, end
        self._compiled = compiled and device.type == "cuda"
        self.is_weighted = answers is not None
        self.weights = target_weights(seq_len, answers).to(device)

    def loss(self, hidden_states: HiddenStates, output_weight: Tensor, batch: Tensor) -> Tensor:
        """Return the loss of ``batch`` [B, T+1] as a differentiable scalar."""
        hidden = hidden_states(batch[:, :-1]).flatten(0, 1)
        targets = batch[:, 1:].flatten()
        weights = (self.weights / len(batch)).repeat(len(batch)) if self.is_weighted else None
        return chunked_cross_entropy(
            hidden, output_weight, targets, self._chunk, weights, compiled=self._compiled
        )

    @torch.no_grad()
    def row_losses(
        self, hidden_states: HiddenStates, output_weight: Tensor, batch: Tensor
    ) -> Tensor:
        """Return the loss of each row of ``batch`` [B, T+1] on its own, float64 [B]."""
        hidden = hidden_states(batch[:, :-1]).flatten(0, 1)
        losses = token_losses(hidden, output_weight, batch[:, 1:].flatten(), self._chunk)
        return losses.double().view(len(batch), -1) @ self.weights.double()


def target_weights(seq_len: int, answers: Sequence[int] | None) -> Tensor:
    """Return the weight [T] of each target: the loss of a row is the weighted sum over it."""
    if answers is None:
        return torch.full((seq_len,), 1.0 / seq_len)
    is_answer = torch.zeros(seq_len, dtype=torch.bool)
    is_answer[list(answers)] = True
    count = int(is_answer.sum())
    assert 0 < count < seq_len, f"{count} answers among {seq_len} targets"
    return torch.where(is_answer, 1.0 / count, LM_WEIGHT / (seq_len - count))
