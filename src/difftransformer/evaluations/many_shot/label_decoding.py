"""Greedy decoding restricted to the labels of a set (Ratner et al. 2023), with a shared KV cache.

The tokens of a label include the token after it, so no label is the beginning of another. Each step
takes the likeliest token that continues a label, the first of equally likely ones. The keys and
values of a prompt are computed once, and the cache is truncated to the prompt before each item; the
answers equal those of decoding each item alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from difftransformer.errors import ConfigError, DataError
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import TruncatableCache

TokenPath = tuple[int, ...]


class LabelTrie:
    """Prefix tree of the token sequences of a set's labels.

    Args:
        paths: Token ids of each label, including the token that ends it.
        names: The labels as text, for messages.

    Attributes:
        index: Index of a label by its token ids.
        next_tokens: Token ids that may follow each prefix, in the order of the labels.

    Raises:
        DataError: Two labels have the same tokens, or one is the beginning of another.
    """

    def __init__(self, paths: Sequence[TokenPath], names: Sequence[str]) -> None:
        self.paths = list(paths)
        self.index: dict[TokenPath, int] = {}
        self.next_tokens: dict[TokenPath, list[int]] = {}
        for index, path in enumerate(paths):
            if path in self.index:
                raise DataError(
                    f"labels '{names[self.index[path]]}' and '{names[index]}' have the same tokens"
                )
            self.index[path] = index
            for depth, token in enumerate(path):
                children = self.next_tokens.setdefault(path[:depth], [])
                if token not in children:
                    children.append(token)
        for path, index in self.index.items():
            if not path or path in self.next_tokens:
                raise DataError(f"label '{names[index]}' is empty, or the beginning of another")


@dataclass
class LabelDecoder:
    """Decodes the labels of items after a shared prompt, whose KV cache is computed once.

    Attributes:
        scorer: The model.
        labels: The possible answers.
        chunk: Prompt positions computed at a time.
        computed_positions: Positions computed so far.
        prompt_positions: Positions that decoding each item alone would have computed so far.
    """

    scorer: Scorer
    labels: LabelTrie
    chunk: int
    computed_positions: int = 0
    prompt_positions: int = 0

    def answers(self, prompt: Sequence[int], items: Sequence[Sequence[int]]) -> list[int]:
        """Return the index of the label that the model gives to each item.

        Args:
            prompt: Token ids of the demonstrations.
            items: Token ids of each item; at least one item.

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
        cache, answers = self.scorer.new_cache(capacity), list[int]()
        self.scorer.prefill(prompt, cache, self.chunk)
        self.computed_positions += len(prompt)
        for item in items:
            cache.truncate(len(prompt))
            self.prompt_positions += len(prompt)
            answers.append(self._answer(item, cache))
        return answers

    def capacity(self, prompt: Sequence[int], items: Sequence[Sequence[int]]) -> int:
        """Return the positions that a prompt takes with its longest item and its longest label."""
        longest = max(map(len, self.labels.paths)) - 1
        return len(prompt) + max(map(len, items)) + longest

    def _answer(self, item: Sequence[int], cache: TruncatableCache) -> int:
        unread: list[int] = list(item)
        path: TokenPath = ()
        while path not in self.labels.index:
            candidates, best = self.labels.next_tokens[path], 0
            if len(candidates) > 1:
                log_probs = self.scorer.next_log_probs(unread, cache)[candidates]
                self.computed_positions += len(unread)
                self.prompt_positions += len(unread)
                best, unread = int(log_probs.argmax()), []
            path = (*path, candidates[best])
            unread.append(candidates[best])
        return self.labels.index[path]
