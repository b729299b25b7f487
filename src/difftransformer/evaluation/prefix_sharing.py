"""Greedy generation for many prompts that begin alike: what they share is computed once.

Prompts are answered in the order of their tokens, so that each follows the one it shares the
longest prefix with, and their keys and values lie in one cache that is cut back to that prefix.
Nothing else differs from generating for each prompt alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from difftransformer.errors import ConfigError
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import PrefixCache

Ended = Callable[[list[int]], bool]


@dataclass(frozen=True)
class Request:
    """One prompt: its tokens, room for new ones, and whether new ones are a whole answer."""

    prompt: list[int]
    new_tokens: int
    ended: Ended


@dataclass
class Generator:
    """Answers requests greedily, one at a time.

    Attributes:
        scorer: The model.
        chunk: Positions of a prompt computed at one time.
        share: Whether a prompt reuses the prefix it shares with the one before.
        computed: Prompt positions computed so far.
        given: Prompt positions asked for so far.
    """

    scorer: Scorer
    chunk: int
    share: bool = True
    computed: int = 0
    given: int = 0

    def generate(self, requests: Sequence[Request]) -> list[list[int]]:
        """New tokens of every request, in the order of the requests.

        Raises:
            ConfigError: A prompt and its answer are longer than the model's context.
        """
        capacity = max((len(one.prompt) + one.new_tokens for one in requests), default=0)
        if capacity > self.scorer.max_positions:
            raise ConfigError(
                f"a prompt and its answer take {capacity} positions, the model's context is "
                f"{self.scorer.max_positions}: lower lengths or max_new_tokens"
            )
        answers: list[list[int]] = [[] for _ in requests]
        cache, held = PrefixCache(capacity), list[int]()
        for index in sorted(range(len(requests)), key=lambda i: requests[i].prompt):
            request = requests[index]
            # The last token is computed anew: its state is what the answer starts from.
            common = min(_common(held, request.prompt), len(request.prompt) - 1)
            if not self.share:
                cache, common = PrefixCache(capacity), 0
            cache.keep(common)
            answers[index] = list(self._answer(request, common, cache))
            held = request.prompt
        return answers

    def _answer(self, request: Request, common: int, cache: PrefixCache) -> Iterator[int]:
        prompt, new = request.prompt, list[int]()
        self.given += len(prompt)
        self.computed += len(prompt) - common
        for start in range(common, len(prompt), self.chunk):
            choice = self.scorer.next_choice(prompt[start : start + self.chunk], cache)
        while True:
            new.append(choice)
            yield choice
            if len(new) == request.new_tokens or request.ended(new):
                return
            choice = self.scorer.next_choice([choice], cache)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
