"""Decoding among labels equals scoring every label by brute force, with and without a cache."""

from typing import Any

import numpy as np
import pytest
import torch
from small_decoders import model_of
from small_evaluation import model_config, scorer

from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluations.many_shot.label_decoding import LabelDecoder, LabelTrie
from difftransformer.models.cache import PrefixCache
from difftransformer.models.language_model import HFCausalLM
from difftransformer.models.transformer import Transformer

# Shared beginnings, and labels that only their ending (1) tells from a longer one.
PATHS = [(2, 1), (2, 3, 1), (2, 3, 4, 1), (5, 1), (5, 2, 2, 1), (6, 7, 1), (8, 1)]
LABELS = LabelTrie(PATHS, [str(path) for path in PATHS])
VOCAB = 16


def model(seed: int) -> Any:
    return scorer(Transformer.build(model_config(VOCAB), "sdpa", seed).eval())


@torch.inference_mode()
def table(
    scored: Any, tokens: list[int], paths: list[tuple[int, ...]] = PATHS
) -> list[list[float]]:
    """Log-probability of every token of every label, each label a full pass without a cache."""
    rows = []
    for path in paths:
        tokens_and_label = torch.tensor([[*tokens, *path[:-1]]])
        logits = scored.hidden_states(tokens_and_label)[0] @ scored.model.output_weight.T
        log_probs = logits.double().log_softmax(-1)[len(tokens) - 1 :]
        rows.append([float(log_probs[step, token]) for step, token in enumerate(path)])
    return rows


def brute_force(labels: LabelTrie, table: list[list[float]]) -> int:
    """What decoding must give, from the log-probability of every token of every label."""
    remaining, step = list(range(len(table))), 0
    while len(remaining) > 1:
        top = max(remaining, key=lambda index: table[index][step])
        token = labels.paths[top][step]
        remaining = [index for index in remaining if labels.paths[index][step] == token]
        step += 1
    return remaining[0]


def test_a_shared_prompt_answers_like_brute_force() -> None:
    answers, differ = set(), 0
    for seed in range(24):
        scored, draw = model(seed), np.random.default_rng(seed)
        prompt = draw.integers(0, VOCAB, 9).tolist()
        items = [draw.integers(0, VOCAB, 1 + i % 3).tolist() for i in range(8)]
        answered = LabelDecoder(scored, LABELS, 4).answers(prompt, items)
        tables = [table(scored, prompt + item) for item in items]
        assert answered == [brute_force(LABELS, rows) for rows in tables]
        sums = [[sum(row) for row in rows] for rows in tables]
        likeliest = [scored.index(max(scored)) for scored in sums]
        differ += sum(scored != other for scored, other in zip(answered, likeliest, strict=True))
        answers |= set(answered)
    assert len(answers) > 3 and differ > 0  # neither trivial nor the same thing


def test_a_model_of_transformers_answers_like_brute_force() -> None:
    model, draw = (
        scorer(HFCausalLM(model_of("qwen2", initializer_range=0.5))),
        np.random.default_rng(0),
    )
    prompt = draw.integers(0, VOCAB, 9).tolist()
    items = [draw.integers(0, VOCAB, 1 + i % 3).tolist() for i in range(8)]
    answered = LabelDecoder(model, LABELS, 4).answers(prompt, items)
    tables = [table(model, prompt + item) for item in items]
    assert answered == [brute_force(LABELS, rows) for rows in tables]
    assert len(set(answered)) > 1


def test_labels_may_share_a_first_token() -> None:
    paths, answers = [(2, 3, 1), (2, 4, 1), (2, 5, 1)], set()
    labels = LabelTrie(paths, "abc")
    for seed in range(4):
        scored, prompt, items = model(seed), list(range(10)), [[3, 4], [5], [6, 7]]
        answered = LabelDecoder(scored, labels, 4).answers(prompt, items)
        tables = [table(scored, prompt + item, paths) for item in items]
        assert answered == [brute_force(labels, rows) for rows in tables]
        answers |= set(answered)
    assert len(answers) > 1


def test_items_share_the_computed_prompt() -> None:
    scored, prompt, items = model(0), list(range(10)), [[3, 4], [5], [6, 7]]
    together, alone = (LabelDecoder(scored, LabelTrie([(2,), (3,)], "ab"), 4) for _ in range(2))
    assert together.answers(prompt, items) == [alone.answers(prompt, [x])[0] for x in items]
    assert (together.computed_positions, alone.computed_positions) == (10 + 5, 3 * 10 + 5)
    assert together.prompt_positions == alone.prompt_positions == alone.computed_positions


def test_next_log_probabilities_are_normalized_and_read_fills_the_cache() -> None:
    scored, cache = model(0), PrefixCache(8)
    scored.prefill([1, 2, 3, 4, 5], cache, 2)
    assert cache.get_seq_length() == 5
    answered = scored.next_log_probs([6], cache)
    assert answered.shape == (VOCAB,) and float(answered.exp().sum()) == pytest.approx(1, abs=1e-5)


def test_a_prompt_beyond_the_context_is_refused() -> None:
    shared = LabelDecoder(model(0), LABELS, 4)
    assert shared.capacity([0] * 35, [[1, 2]]) == 40
    with pytest.raises(ConfigError, match="take 41 positions, the model's context is 40"):
        shared.answers([0] * 36, [[1, 2]])


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([(2, 1), (2, 1)], "labels 'a' and 'b' have the same tokens"),
        ([(2, 1), (2,)], "label 'b' is empty, or the beginning of another"),
        ([(2, 1), ()], "label 'b' is empty"),
    ],
)
def test_ambiguous_labels_are_refused(paths: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        LabelTrie(paths, "ab")
