"""Greedy decoding among the labels of a set (Ratner et al. 2023), for many items behind one prompt.

Every label is a path of tokens that ends with the token behind a label, so no label is a part of
another. At each step the likeliest of the tokens that go on to a label is taken, the first of
equals. The keys and values of a prompt are computed once: the cache is cut back to the prompt
before each item. Nothing else differs from answering each alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import CroppableCache

Path = tuple[int, ...]


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


@dataclass
class SharedPrompt:
    """Answers items among labels.

    Attributes:
        scorer: The model.
        labels: What can be answered.
        chunk: Positions of a prompt computed at one time.
        computed: Positions computed so far.
        given: Positions that items would have computed alone so far.
    """

    scorer: Scorer
    labels: Labels
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
        if capacity > (longest := self.scorer.model.max_positions):
            raise ConfigError(
                f"demonstrations, an item and its label take {capacity} positions, the model's "
                f"context is {longest}: lower `demonstrations` of the suite, or set "
                "`context_fit: skip`"
            )
        cache, found = self.scorer.new_cache(capacity), list[int]()
        self.scorer.prefill(prompt, cache, self.chunk)
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

    def _answer(self, item: Sequence[int], cache: CroppableCache) -> int:
        unread: list[int] = list(item)
        path: Path = ()
        while path not in self.labels.index:
            options, best = self.labels.following[path], 0
            if len(options) > 1:
                found = self.scorer.next_log_probs(unread, cache)[options]
                self.computed += len(unread)
                self.given += len(unread)
                best, unread = int(found.argmax()), []
            path = (*path, options[best])
            unread.append(options[best])
        return self.labels.index[path]
