"""Decoding among labels gives what scoring every label by brute force gives, cache or none."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from small_decoders import model_of
from small_evaluation import model_config, scorer
from torch import Tensor

from difftransformer.errors import ConfigError, DataError
from difftransformer.measurements.many_shot import label_decoding
from difftransformer.measurements.many_shot.label_decoding import (
    Decoding,
    Labels,
    SharedPrompt,
    decode,
)
from difftransformer.models.cache import PrefixCache
from difftransformer.models.language_model import CausalModel
from difftransformer.models.transformer import Transformer

# Shared beginnings, and labels that only their ending (1) tells from a longer one.
PATHS = [(2, 1), (2, 3, 1), (2, 3, 4, 1), (5, 1), (5, 2, 2, 1), (6, 7, 1), (8, 1)]
LABELS = Labels(PATHS, [str(path) for path in PATHS])
VOCAB = 16


def model(seed: int) -> Any:
    return scorer(Transformer.build(model_config(VOCAB), "sdpa", seed).eval())


@torch.inference_mode()
def table(one: Any, tokens: list[int], paths: list[tuple[int, ...]] = PATHS) -> list[list[float]]:
    """Log-probability of every token of every label, each label a full pass without a cache."""
    rows = []
    for path in paths:
        whole = torch.tensor([[*tokens, *path[:-1]]])
        logits = one.states(whole)[0] @ one.model.output_weight.T
        found = logits.double().log_softmax(-1)[len(tokens) - 1 :]
        rows.append([float(found[place, token]) for place, token in enumerate(path)])
    return rows


def brute_force(labels: Labels, table: list[list[float]], decoding: Decoding) -> int:
    """What decoding must give, from the log-probability of every token of every label."""
    if decoding == "exact":
        sums = [sum(row) for row in table]
        return sums.index(max(sums))
    left, place = list(range(len(table))), 0
    while len(left) > 1:
        top = max(left, key=lambda index: table[index][place])
        token = labels.paths[top][place]
        left = [index for index in left if labels.paths[index][place] == token]
        place += 1
    return left[0]


@pytest.mark.parametrize("decoding", ["greedy", "exact"])
def test_a_shared_prompt_answers_like_brute_force(decoding: Decoding) -> None:
    answers, differ = set(), 0
    for seed in range(24):
        one, draw = model(seed), np.random.default_rng(seed)
        prompt = draw.integers(0, VOCAB, 9).tolist()
        items = [draw.integers(0, VOCAB, 1 + i % 3).tolist() for i in range(8)]
        found = SharedPrompt(one, LABELS, decoding, 4).answers(prompt, items)
        tables = [table(one, prompt + item) for item in items]
        assert found == [brute_force(LABELS, rows, decoding) for rows in tables]
        differ += sum(
            brute_force(LABELS, rows, "greedy") != brute_force(LABELS, rows, "exact")
            for rows in tables
        )
        answers |= set(found)
    assert len(answers) > 3 and differ > 0  # neither trivial nor the same thing


@pytest.mark.parametrize("decoding", ["greedy", "exact"])
def test_a_model_of_transformers_answers_like_brute_force(decoding: Decoding) -> None:
    one, draw = (
        scorer(CausalModel(model_of("qwen2", initializer_range=0.5))),
        np.random.default_rng(0),
    )
    prompt = draw.integers(0, VOCAB, 9).tolist()
    items = [draw.integers(0, VOCAB, 1 + i % 3).tolist() for i in range(8)]
    found = SharedPrompt(one, LABELS, decoding, 4).answers(prompt, items)
    tables = [table(one, prompt + item) for item in items]
    assert found == [brute_force(LABELS, rows, decoding) for rows in tables]
    assert len(set(found)) > 1


@torch.inference_mode()
def test_parts_of_labels_may_be_asked_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was computed before, as for one path alone behind the prompt and the item."""
    one, prompt, item = model(1), [3, 1, 4, 1, 5], [9, 2]
    parts = sorted({path[:place] for path in PATHS for place in range(len(path))})
    order = [parts[place] for place in np.random.default_rng(0).permutation(len(parts))] * 2
    seen: list[tuple[tuple[int, ...], Tensor]] = []

    def visit(labels: Labels, log_probabilities: Any, decoding: str) -> int:
        seen.extend((path, log_probabilities(path)) for path in order)
        return 0

    monkeypatch.setattr(label_decoding, "decode", visit)
    SharedPrompt(one, LABELS, "exact", 4).answers(prompt, [item, item])
    assert len(seen) == 4 * len(parts)
    for path, found in seen:
        states = one.states(torch.tensor([[*prompt, *item, *path]]))
        wanted = (states[0, -1] @ one.model.output_weight.T).log_softmax(-1)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("decoding", ["greedy", "exact"])
def test_brute_force_is_what_it_says(decoding: Decoding) -> None:
    """Against every path of a random tree, written out without the class's own tree."""
    for seed in range(50):
        draw = np.random.default_rng(seed)
        values = {
            path[: place + 1]: float(draw.normal()) for path in PATHS for place in range(len(path))
        }
        rows = [[values[path[: place + 1]] for place in range(len(path))] for path in PATHS]

        def log_probabilities(path: tuple[int, ...], known: dict[Any, float] = values) -> Any:
            nexts = [known.get((*path, token), -99.0) for token in range(VOCAB)]
            return torch.tensor(nexts, dtype=torch.float64)

        if decoding == "exact":  # sums of log-probabilities can only fall
            rows = [[-abs(value) for value in row] for row in rows]
            values |= {key: -abs(value) for key, value in values.items()}
        assert decode(LABELS, log_probabilities, decoding) == brute_force(LABELS, rows, decoding)


@pytest.mark.parametrize("decoding", ["greedy", "exact"])
def test_labels_may_all_begin_alike(decoding: Decoding) -> None:
    paths, answers = [(2, 3, 1), (2, 4, 1), (2, 5, 1)], set()
    labels = Labels(paths, "abc")
    for seed in range(4):
        one, prompt, items = model(seed), list(range(10)), [[3, 4], [5], [6, 7]]
        found = SharedPrompt(one, labels, decoding, 4).answers(prompt, items)
        tables = [table(one, prompt + item, paths) for item in items]
        assert found == [brute_force(labels, rows, decoding) for rows in tables]
        answers |= set(found)
    assert len(answers) > 1


def test_items_share_the_prompt_and_alone_they_do_not() -> None:
    one, prompt, items = model(0), list(range(10)), [[3, 4], [5], [6, 7]]
    together, alone = (SharedPrompt(one, Labels([(2,), (3,)], "ab"), "greedy", 4) for _ in range(2))
    assert together.answers(prompt, items) == [alone.answers(prompt, [x])[0] for x in items]
    assert (together.computed, alone.computed) == (10 + 5, 3 * 10 + 5)
    assert together.given == alone.given == alone.computed


def test_next_log_probabilities_are_normalised_and_read_fills_the_cache() -> None:
    one, cache = model(0), PrefixCache(8)
    one.read([1, 2, 3, 4, 5], cache, 2)
    assert cache.get_seq_length() == 5
    found = one.next_log_probabilities([6], cache)
    assert found.shape == (VOCAB,) and float(found.exp().sum()) == pytest.approx(1, abs=1e-5)


def test_a_prompt_beyond_the_context_is_refused() -> None:
    shared = SharedPrompt(model(0), LABELS, "greedy", 4)
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
def test_labels_that_cannot_be_told_apart(paths: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Labels(paths, "ab")


def test_every_label_can_be_decoded() -> None:
    for wanted, decoding in product(range(len(PATHS)), ("greedy", "exact")):

        def sure(path: tuple[int, ...], goal: tuple[int, ...] = PATHS[wanted]) -> Any:
            on_the_way = goal[: len(path)] == path
            token = goal[len(path)] if on_the_way else 0
            return torch.nn.functional.one_hot(torch.tensor(token), VOCAB).double().log()

        assert decode(LABELS, sure, decoding) == wanted
