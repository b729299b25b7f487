"""Decoding among the labels of a set alone, token by token, for many items behind one prompt.

Every label is a path of tokens that ends with the token behind a label, so no label is a part of
another. Two decoders are there, and for each of them a table of the log-probabilities of all tokens
of all labels, computed without any cache, gives the same answer:

- greedy (Ratner et al. 2023): at each step the likeliest of the tokens that go on to a label. It
  equals picking, place by place, the largest entry among the labels still possible.
- exact: the label with the largest sum of log-probabilities. A path is followed only while its sum
  so far is the largest, so most labels are never computed; what comes next can only lower a sum.

The keys and values of a prompt are computed once: the cache is cut back to the prompt before each
item, and to the item before each part of a label. Nothing else differs from answering each alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Literal

from torch import Tensor

from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.generation import common_prefix
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import CutCache

Path = tuple[int, ...]
LogProbabilities = Callable[[Path], Tensor]
"""Log-probabilities [V] of what follows the item and a path."""
Decoding = Literal["greedy", "exact"]


class Labels:
    """Labels by their paths, and what may follow each part of a path.

    Args:
        paths: Tokens of each label, the ending among them.
        names: The labels, for messages.

    Attributes:
        index: Number of the label by its path.
        following: Tokens that go on from a part of a path, in the order of the labels.

    Raises:
        DataError: Two labels have the same tokens, or one is the beginning of another.
    """

    def __init__(self, paths: Sequence[Path], names: Sequence[str]) -> None:
        self.paths = list(paths)
        self.index: dict[Path, int] = {}
        self.following: dict[Path, list[int]] = {}
        for index, path in enumerate(paths):
            if path in self.index:
                raise DataError(
                    f"labels '{names[self.index[path]]}' and '{names[index]}' have the same tokens"
                )
            self.index[path] = index
            for place, token in enumerate(path):
                following = self.following.setdefault(path[:place], [])
                if token not in following:
                    following.append(token)
        for path, index in self.index.items():
            if not path or path in self.following:
                raise DataError(f"label '{names[index]}' is empty, or the beginning of another")


def decode(labels: Labels, log_probabilities: LogProbabilities, decoding: Decoding) -> int:
    """Return the number of the label that the model continues with; the first of equals wins."""
    decoder = _greedy if decoding == "greedy" else _exact
    return decoder(labels, log_probabilities)


def _greedy(labels: Labels, log_probabilities: LogProbabilities) -> int:
    path: Path = ()
    while path not in labels.index:
        options = labels.following[path]
        best = int(log_probabilities(path)[options].argmax()) if len(options) > 1 else 0
        path = (*path, options[best])
    return labels.index[path]


def _exact(labels: Labels, log_probabilities: LogProbabilities) -> int:
    best: list[tuple[float, int, Path]] = [(0.0, 0, ())]
    pushed = 0
    while True:
        negative, _, path = heappop(best)
        if path in labels.index:
            return labels.index[path]
        options = labels.following[path]
        values = log_probabilities(path)[options].double().tolist()
        for token, value in zip(options, values, strict=True):
            pushed += 1
            heappush(best, (negative - value, pushed, (*path, token)))


@dataclass
class SharedPrompt:
    """Answers items among labels.

    Attributes:
        scorer: The model.
        labels: What can be answered.
        decoding: How.
        chunk: Positions of a prompt computed at one time.
        computed: Positions computed so far.
        given: Positions that items would have computed alone so far.
    """

    scorer: Scorer
    labels: Labels
    decoding: Decoding
    chunk: int
    computed: int = 0
    given: int = 0

    def answers(self, prompt: Sequence[int], items: Sequence[Sequence[int]]) -> list[int]:
        """Return the number of each item's label.

        Args:
            prompt: Tokens of the demonstrations.
            items: Tokens of each item, at least one.

        Raises:
            ConfigError: The prompt and an item are longer than the model's context.
        """
        capacity = self.capacity(prompt, items)
        if capacity > self.scorer.max_positions:
            raise ConfigError(
                f"demonstrations, an item and its label take {capacity} positions, the model's "
                f"context is {self.scorer.max_positions}: lower `demonstrations` of the suite, or "
                "set `numbers: fitting`"
            )
        cache, found = self.scorer.new_cache(capacity), list[int]()
        self.scorer.read(prompt, cache, self.chunk)
        self.computed += len(prompt)
        for item in items:
            cache.keep(len(prompt))
            self.given += len(prompt)
            found.append(self._answer(item, cache))
        return found

    def capacity(self, prompt: Sequence[int], items: Sequence[Sequence[int]]) -> int:
        """Positions of the prompt with its longest item and label, whose last token is not read."""
        longest = max(map(len, self.labels.paths)) - 1
        return len(prompt) + max(map(len, items)) + longest

    def _answer(self, item: Sequence[int], cache: CutCache) -> int:
        before = cache.get_seq_length()
        read: Sequence[int] = ()

        def log_probabilities(path: Path) -> Tensor:
            nonlocal read
            tokens = (*item, *path)
            # The last token is always computed: its state is what the next one comes from.
            common = min(common_prefix(read, tokens), len(tokens) - 1)
            cache.keep(before + common)
            new, read = tokens[common:], tokens
            self.computed += len(new)
            self.given += len(new)
            return self.scorer.next_log_probabilities(new, cache)

        return decode(self.labels, log_probabilities, self.decoding)
