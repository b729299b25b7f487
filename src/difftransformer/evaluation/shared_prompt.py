"""Answers to many items behind one prompt, whose keys and values are computed once.

The cache is cut back to the prompt before each item, and to the item before each part of a label.
Nothing else differs from answering each item alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from torch import Tensor

from difftransformer.errors import ConfigError
from difftransformer.evaluation.label_decoding import Decoding, Labels, Path, decode
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import PrefixCache


@dataclass
class SharedPrompt:
    """Answers items among labels.

    Attributes:
        scorer: The model.
        labels: What can be answered.
        decoding: How.
        chunk: Positions of a prompt computed at one time.
        share: Whether items share the prompt; if not, each computes it anew.
        computed: Positions computed so far.
        given: Positions that items would have computed alone so far.
    """

    scorer: Scorer
    labels: Labels
    decoding: Decoding
    chunk: int
    share: bool = True
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
        cache, found = PrefixCache(capacity), list[int]()
        for place, item in enumerate(items):
            if place == 0 or not self.share:
                cache = PrefixCache(capacity)
                self.scorer.read(prompt, cache, self.chunk)
                self.computed += len(prompt)
            cache.keep(len(prompt))
            self.given += len(prompt)
            found.append(self._answer(item, cache))
        return found

    def capacity(self, prompt: Sequence[int], items: Sequence[Sequence[int]]) -> int:
        """Positions of the prompt with its longest item and label, whose last token is not read."""
        longest = max(map(len, self.labels.paths)) - 1
        return len(prompt) + max(map(len, items)) + longest

    def _answer(self, item: Sequence[int], cache: PrefixCache) -> int:
        before = cache.get_seq_length()
        read: Sequence[int] = ()

        def log_probabilities(path: Path) -> Tensor:
            nonlocal read
            tokens = (*item, *path)
            # The last token is always computed: its state is what the next one comes from.
            common = min(_common(read, tokens), len(tokens) - 1)
            cache.keep(before + common)
            new, read = tokens[common:], tokens
            self.computed += len(new)
            self.given += len(new)
            return self.scorer.next_log_probabilities(new, cache)

        return decode(self.labels, log_probabilities, self.decoding)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
