"""The training loss: cross-entropy in chunks, so that all logits never exist at a time.

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
"""Function from tokens [B, T] to hidden states [B, T, D]."""


def document_end(config: TrainingConfig, dataset: PackedDataset) -> int | None:
    """Return the id of the token that ends documents if ``document_mask`` is set, else None.

    Raises:
        ConfigError: The dataset has no such token.
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
    """Return ``states`` with attention restricted to documents, or unchanged if ``end`` is None.

    Args:
        states: A function from tokens to hidden states, compiled or not.
        end: Id of the token that ends a document.
    """
    if end is None:
        return states

    def masked(tokens: Tensor) -> Tensor:
        return states(tokens, segment_ids=segment_ids_from_eos(tokens, end))

    return masked


LM_WEIGHT = 0.5
"""Weight of all targets that are not answers, in rows with answer positions."""


class Objective:
    """The loss of a run, in training and validation.

    For packed text it is the mean cross-entropy of all targets, for rows with answer positions
    ``mean CE(answers) + LM_WEIGHT * mean CE(other targets)``.

    Args:
        seq_len: T, targets per sequence.
        chunk: Positions whose logits exist at a time.
        answers: Indices of the answers among the T targets; None for packed text.
        device: Device of the batches.
        compiled: Whether to compile the loss, on a GPU.
        end: Id of the token that ends a document, if attention is masked to documents; else None.
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
        """Return the loss of ``batch``, token ids [B, T+1], as a differentiable scalar."""
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
        """Return the loss of each row of ``batch``, token ids [B, T+1], as float64 [B]."""
        hidden = hidden_states(batch[:, :-1]).flatten(0, 1)
        losses = token_losses(hidden, output_weight, batch[:, 1:].flatten(), self._chunk)
        return losses.double().view(len(batch), -1) @ self.weights.double()


def target_weights(seq_len: int, answers: Sequence[int] | None) -> Tensor:
    """Return the weight [T] of each target's loss in the loss of a row."""
    if answers is None:
        return torch.full((seq_len,), 1.0 / seq_len)
    is_answer = torch.zeros(seq_len, dtype=torch.bool)
    is_answer[list(answers)] = True
    count = int(is_answer.sum())
    assert 0 < count < seq_len, f"{count} answers among {seq_len} targets"
    return torch.where(is_answer, 1.0 / count, LM_WEIGHT / (seq_len - count))
