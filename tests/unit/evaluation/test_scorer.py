"""Log-probabilities of a scorer over the vocabulary, in chunks."""

import pytest
import torch
from small_evaluation import model_config

from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import PrefixCache
from difftransformer.models.transformer import Transformer

VOCAB = 16
WINDOWS = torch.arange(2 * 10).view(2, 10) % VOCAB


@pytest.fixture
def scorer() -> Scorer:
    model = Transformer.build(model_config(VOCAB), "sdpa", 0)
    return Scorer(model.eval(), torch.device("cpu"))


@pytest.mark.parametrize("chunk", [1, 4, 7, 18, 100])
def test_log_probabilities_come_in_chunks_and_give_the_losses(scorer: Scorer, chunk: int) -> None:
    parts = list(scorer.log_probs(WINDOWS[:, :-1], chunk))
    targets = WINDOWS[:, 1:].flatten().split(chunk)
    assert [len(part) for part in parts] == [len(target) for target in targets]
    assert len(parts[0]) == min(chunk, 18) and parts[0].dtype == torch.float32
    of_targets = [
        part.gather(1, target[:, None])[:, 0] for part, target in zip(parts, targets, strict=True)
    ]
    losses = scorer.losses(WINDOWS, chunk).flatten()
    torch.testing.assert_close(-torch.cat(of_targets).double(), losses)


def test_next_log_probs_equal_those_of_the_last_position(scorer: Scorer) -> None:
    tokens = WINDOWS[0].tolist()
    together = torch.cat([*scorer.log_probs(WINDOWS[:1], 3)])[-1]
    alone = scorer.next_log_probs(tokens, PrefixCache(len(tokens)))
    torch.testing.assert_close(alone, together)
