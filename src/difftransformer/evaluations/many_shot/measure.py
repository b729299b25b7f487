"""Many-shot in-context learning: accuracy by the number of demonstrations and by their order.

Prompts depend on the suite, the labeled set and the tokenizer alone, so all runs and seeds answer
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
from difftransformer.evaluation.generation import encode, open_tokenizer, opening
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.many_shot.examples import (
    Example,
    LabeledSet,
    arrange,
    asked,
    choose,
    open_sets,
)
from difftransformer.evaluations.many_shot.label_decoding import Labels, SharedPrompt
from difftransformer.evaluations.many_shot.settings import ITEMS_SEED, Suite, accuracy_metric
from difftransformer.evaluations.many_shot.tasks import CLASSIFICATION_TASKS, SEPARATOR
from difftransformer.provenance.atomic import write_text

Right = dict[int, NDArray[np.bool_]]
"""Whether answers are right, by number of demonstrations: [draws, orders, items]."""


def measure(suite: Suite, context: EvalContext) -> EvalResult:
    """Accuracies with the counts behind them.

    Returns:
        accuracy_, correct_ and total_ of every number of demonstrations n{K} that was measured, and
        accuracy_n{K}_o{S} of each of its orders S; chance = 1 / classes. computed_positions of
        prompt_positions tells how many positions were computed and how many the items would have
        computed alone. Accuracies over all orders are known by draw, too, whose items share their
        demonstrations; those of a single draw by item.

    Raises:
        ConfigError: The suite does not fit its tokenizer.
        DataError: Items are missing or damaged.
    """
    rows = context.dataset.manifest.classification
    longest = context.scorer.model.max_positions
    sets, prompts = open_sets(suite, rows), Prompts(suite, context)
    draws = [
        Draw(suite, context.scorer, sets(number), prompts, number) for number in range(suite.draws)
    ]
    numbers = _numbers(suite, draws, longest)
    shape = (suite.draws, suite.order_seeds, suite.test_items)
    right: Right = {number: np.zeros(shape, dtype=np.bool_) for number in numbers}
    lines: list[dict[str, Any]] = []
    for draw, number, seed in product(draws, numbers, range(suite.order_seeds)):
        found = draw.shared.answers(draw.prompt(number, seed), draw.items)
        some = draw.lines(number, seed, found)
        right[number][draw.number, seed] = [one["correct"] for one in some]
        lines += some
    write_text(context.details / "predictions.jsonl", "".join(json.dumps(x) + "\n" for x in lines))
    measured = _measured(suite, right)
    positions = {
        "computed_positions": sum(one.shared.computed for one in draws),
        "prompt_positions": sum(one.shared.given for one in draws),
    }
    return measured._replace(metrics={**measured.metrics, **positions})


class Prompts:
    """Text of demonstrations and items as tokens.

    A prompt is put together from pieces that are encoded one by one, so that a label has the same
    tokens in a demonstration as where it is decoded.
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
            self.opening = opening(self._tokenizer, manifest.tokenizer.eos_id)
            self._require_pieces(str(context.dataset.folder))
        self._separator = self._ids(separator)

    def _require_pieces(self, name: str) -> None:
        pieces = ("Question: a\nType:", " one", SEPARATOR)
        joined = [token for piece in pieces for token in self._ids(piece)]
        if self._tokenizer.decode(joined) != "".join(pieces):
            raise ConfigError(
                f"{name}: its tokenizer reads a piece of a text otherwise than within the text, as "
                "SentencePiece does: many-shot prompts need byte-level tokens, as Llama 3's and "
                "Qwen's"
            )

    def item(self, text: str) -> list[int]:
        """Tokens of an item up to where its label begins."""
        before, after = self._prefixes
        return self._ids(f"{before}{text}\n{after}".rstrip())

    def label(self, label: str) -> tuple[int, ...]:
        """Tokens of a label, with the one behind it, which tells where it ends."""
        return (*self._ids(f" {label}"), *self._separator[:1])

    def demonstration(self, example: Example) -> list[int]:
        """Tokens of an item with its label, up to the next item."""
        return [*self.item(example.text), *self.label(example.label), *self._separator[1:]]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = encode(self._tokenizer, text).ids
        return ids


class Draw:
    """One choice of demonstrations and items.

    Attributes:
        number: Its number.
        items: Tokens of the items asked.
        shared: What answers them among their labels.
    """

    def __init__(
        self, suite: Suite, scorer: Scorer, known: LabeledSet, prompts: Prompts, number: int
    ) -> None:
        self._suite, self._known, self._prompts, self.number = suite, known, prompts, number
        self._seed = ITEMS_SEED + number
        self._asked = asked(known.test, suite.test_items, seed=self._seed)
        self.items = [prompts.item(example.text) for example in self._asked]
        labels = Labels([prompts.label(one) for one in known.labels], known.labels)
        self.shared = SharedPrompt(scorer, labels, suite.chunk)

    def prompt(self, number: int, order_seed: int) -> list[int]:
        """Tokens of so many demonstrations in an order."""
        known, selection = self._known, self._suite.selection
        chosen = choose(known.train, known.labels, number, selection, seed=self._seed)
        arranged = arrange(chosen, self._suite.order, seed=order_seed)
        tokens = [token for one in arranged for token in self._prompts.demonstration(one)]
        return self._prompts.opening + tokens

    def lines(self, number: int, order_seed: int, found: Sequence[int]) -> list[dict[str, Any]]:
        """One record for each answer."""
        return [
            {
                "draw": self.number,
                "demonstrations": number,
                "order_seed": order_seed,
                "item": item,
                "label": example.label,
                "answer": self._known.labels[answer],
                "correct": self._known.labels[answer] == example.label,
            }
            for item, (example, answer) in enumerate(zip(self._asked, found, strict=True))
        ]


def _numbers(suite: Suite, draws: Sequence[Draw], longest: int) -> list[int]:
    """Numbers of demonstrations to measure.

    Raises:
        ConfigError: One must fit but does not, or none does.
    """
    needed = {
        number: max(one.shared.capacity(one.prompt(number, 0), one.items) for one in draws)
        for number in sorted(suite.demonstrations)
    }
    fitting = [number for number, positions in needed.items() if positions <= longest]
    wanted = 1 if suite.context_fit != "require" else len(needed)
    if len(fitting) < wanted:
        number = sorted(suite.demonstrations)[len(fitting)]
        raise ConfigError(
            f"demonstrations: {number} of {suite.task} with an item and its label take "
            f"{needed[number]} positions, the model has {longest}: use fewer"
            + (", or set `context_fit: skip`" if fitting else "")
        )
    return fitting[-1:] if suite.context_fit == "largest" else fitting


def _measured(suite: Suite, right: Right) -> EvalResult:
    metrics: Metrics = {"chance": 1 / suite.num_classes}
    per_item = {}
    unit, others = ("draws", (1, 2)) if suite.draws > 1 else ("items", (0, 1))
    for number, found in right.items():
        orders = found.mean(axis=(0, 2)).tolist()
        metrics |= {
            accuracy_metric(number): float(found.mean()),
            f"correct_n{number}": int(found.sum()),
            f"total_n{number}": found.size,
            **{accuracy_metric(number, seed): value for seed, value in enumerate(orders)},
        }
        per_item[accuracy_metric(number)] = per_item_scores(unit, found.mean(axis=others))
    return EvalResult(metrics, per_item)
