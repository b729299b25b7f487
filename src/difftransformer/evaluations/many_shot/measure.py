"""Many-shot in-context learning: accuracy by the number of demonstrations and by their order.

Prompts depend on the suite, the labeled set and the tokenizer only, so all runs and seeds answer
the same questions. Every answer is in predictions.jsonl.
"""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from difftransformer.errors import ConfigError
from difftransformer.evaluation.context import EvalContext, EvalResult, Metrics, per_item_scores
from difftransformer.evaluation.generation import encode, open_tokenizer, prefix_token_ids
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.many_shot.examples import (
    Example,
    LabeledSet,
    choose_demonstrations,
    open_sets,
    order_demonstrations,
    sample_items,
)
from difftransformer.evaluations.many_shot.label_decoding import LabelDecoder, LabelTrie
from difftransformer.evaluations.many_shot.settings import ITEMS_SEED, Suite, accuracy_metric
from difftransformer.evaluations.many_shot.tasks import CLASSIFICATION_TASKS, SEPARATOR
from difftransformer.provenance.atomic import write_text

Correct = dict[int, NDArray[np.bool_]]
"""Number of demonstrations -> whether each answer is correct, [draws, orders, items]."""


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Return accuracies by number and order of demonstrations, and the counts behind them.

    Returns:
        accuracy_n{K}, correct_n{K} and total_n{K} for each measured number of demonstrations K, and
        accuracy_n{K}_o{S} for each of its orders S; chance = 1 / classes. prompt_positions is the
        number of positions if each item were computed alone, computed_positions the number that
        was computed, as items share prompts. Accuracies over all orders have per-item scores by
        draw, since the items of a draw share demonstrations; with a single draw they are by item.

    Raises:
        ConfigError: The suite does not fit its tokenizer.
        DataError: Items are missing or damaged.
    """
    rows = context.dataset.manifest.classification
    sets, prompts = open_sets(suite, rows), PromptEncoder(suite, context)
    draws = [
        Draw(suite, context.scorer, sets(number), prompts, number) for number in range(suite.draws)
    ]
    shots = _fitting_shots(suite, draws, context.scorer.model.max_positions)
    shape = (suite.draws, suite.order_seeds, suite.test_items)
    correct: Correct = {number: np.zeros(shape, dtype=np.bool_) for number in shots}
    records: list[dict[str, Any]] = []
    for draw, number, seed in product(draws, shots, range(suite.order_seeds)):
        answers = draw.decoder.answers(draw.prompt(number, seed), draw.items)
        draw_records = draw.records(number, seed, answers)
        correct[number][draw.number, seed] = [record["correct"] for record in draw_records]
        records += draw_records
    text = "".join(json.dumps(record) + "\n" for record in records)
    write_text(context.details / "predictions.jsonl", text)
    result = _accuracies(suite, correct)
    positions = {
        name: sum(getattr(draw.decoder, name) for draw in draws)
        for name in ("computed_positions", "prompt_positions")
    }
    return result._replace(metrics={**result.metrics, **positions})


class PromptEncoder:
    """Encodes the demonstrations and items of a prompt, each piece separately.

    A label then has the same tokens in a demonstration as in an answer.
    """

    def __init__(self, suite: Suite, context: EvalContext) -> None:
        manifest = context.dataset.manifest
        self._tokenizer: Tokenizer = open_tokenizer(context.dataset)
        self._prefixes = ("", "")
        separator = ""
        self.opening: list[int] = []
        if not suite.generated:
            self._prefixes, separator = CLASSIFICATION_TASKS[suite.task].prefixes, SEPARATOR
            assert manifest.tokenizer.eos_id is not None
            self.opening = prefix_token_ids(self._tokenizer, manifest.tokenizer.eos_id)
            self._require_byte_level(str(context.dataset.folder))
        self._separator = self._ids(separator)

    def _require_byte_level(self, location: str) -> None:
        pieces = ("Question: a\nType:", " one", SEPARATOR)
        joined = [token for piece in pieces for token in self._ids(piece)]
        if self._tokenizer.decode(joined) != "".join(pieces):
            raise ConfigError(
                f"{location}: its tokenizer encodes a piece of text differently alone than within "
                "a text, as SentencePiece does: many-shot prompts need a byte-level tokenizer, "
                "such as Llama 3's or Qwen's"
            )

    def item(self, text: str) -> list[int]:
        """Return the token ids of an item, up to the position where its label begins."""
        before, after = self._prefixes
        return self._ids(f"{before}{text}\n{after}".rstrip())

    def label(self, label: str) -> tuple[int, ...]:
        """Return the token ids of a label, and the token after it, which ends the label."""
        return (*self._ids(f" {label}"), *self._separator[:1])

    def demonstration(self, example: Example) -> list[int]:
        """Return the token ids of an item with its label, up to the start of the next item."""
        return [*self.item(example.text), *self.label(example.label), *self._separator[1:]]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = encode(self._tokenizer, text).ids
        return ids


class Draw:
    """One choice of demonstrations and test items from a labeled set.

    Attributes:
        number: Index of the draw.
        items: Token ids of the test items.
        decoder: Decoder that answers the items with labels of the set.
    """

    def __init__(
        self, suite: Suite, scorer: Scorer, dataset: LabeledSet, prompts: PromptEncoder, number: int
    ) -> None:
        self._suite, self._dataset, self._prompts, self.number = suite, dataset, prompts, number
        self._seed = ITEMS_SEED + number
        self._examples = sample_items(dataset.test, suite.test_items, seed=self._seed)
        self.items = [prompts.item(example.text) for example in self._examples]
        trie = LabelTrie([prompts.label(label) for label in dataset.labels], dataset.labels)
        self.decoder = LabelDecoder(scorer, trie, suite.chunk)

    def prompt(self, number: int, order_seed: int) -> list[int]:
        """Return the token ids of ``number`` demonstrations, in the order of an order seed."""
        dataset, selection = self._dataset, self._suite.selection
        chosen = choose_demonstrations(
            dataset.train, dataset.labels, number, selection, seed=self._seed
        )
        ordered = order_demonstrations(chosen, self._suite.order, seed=order_seed)
        tokens = [token for example in ordered for token in self._prompts.demonstration(example)]
        return self._prompts.opening + tokens

    def records(self, number: int, order_seed: int, answers: Sequence[int]) -> list[dict[str, Any]]:
        """Return one record for predictions.jsonl per answer; answers are indices of labels."""
        return [
            {
                "draw": self.number,
                "demonstrations": number,
                "order_seed": order_seed,
                "item": item,
                "label": example.label,
                "answer": self._dataset.labels[answer],
                "correct": self._dataset.labels[answer] == example.label,
            }
            for item, (example, answer) in enumerate(zip(self._examples, answers, strict=True))
        ]


def _fitting_shots(suite: Suite, draws: Sequence[Draw], max_positions: int) -> list[int]:
    """Numbers of demonstrations to measure, by `Suite.context_fit`.

    Raises:
        ConfigError: A required number of demonstrations does not fit, or none does.
    """
    needed = {
        number: max(draw.decoder.capacity(draw.prompt(number, 0), draw.items) for draw in draws)
        for number in sorted(suite.demonstrations)
    }
    fitting = [number for number, positions in needed.items() if positions <= max_positions]
    required = 1 if suite.context_fit != "require" else len(needed)
    if len(fitting) < required:
        number = sorted(suite.demonstrations)[len(fitting)]
        raise ConfigError(
            f"demonstrations: {number} of {suite.task} with an item and its label take "
            f"{needed[number]} positions, the model has {max_positions}: use fewer"
            + (", or set `context_fit: skip`" if fitting else "")
        )
    return fitting[-1:] if suite.context_fit == "largest" else fitting


def _accuracies(suite: Suite, correct: Correct) -> EvalResult:
    metrics: Metrics = {"chance": 1 / suite.num_classes}
    per_item = {}
    item_type, mean_axes = ("draws", (1, 2)) if suite.draws > 1 else ("items", (0, 1))
    for number, answers in correct.items():
        by_order = answers.mean(axis=(0, 2)).tolist()
        metrics |= {
            accuracy_metric(number): float(answers.mean()),
            f"correct_n{number}": int(answers.sum()),
            f"total_n{number}": answers.size,
            **{accuracy_metric(number, seed): value for seed, value in enumerate(by_order)},
        }
        per_item[accuracy_metric(number)] = per_item_scores(item_type, answers.mean(axis=mean_axes))
    return EvalResult(metrics, per_item)
