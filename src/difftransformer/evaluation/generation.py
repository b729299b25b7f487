"""Greedy generation: how prompts are encoded, where answers end, and what prompts share.

What many prompts have in common is computed once. They are answered in the order of their tokens,
so that each follows the one it shares the longest prefix with, and their keys and values lie in one
cache that is cut back to that prefix. Short prompts for one token can be computed in batches
instead. Nothing else differs from generating for each prompt alone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from tokenizers import Encoding, Tokenizer

from difftransformer.data.packed import TOKENIZER, PackedDataset
from difftransformer.errors import DataError
from difftransformer.evaluation.scorer import Scorer
from difftransformer.models.cache import TruncatableCache


def encode(tokenizer: Tokenizer, text: str) -> Encoding:
    """Encode a text as it stands: nothing is added, and no special token is read out of it."""
    return tokenizer.encode(text, add_special_tokens=False)


def open_tokenizer(dataset: PackedDataset) -> Tokenizer:
    """Load a dataset's tokenizer, such that no special token is read out of a text.

    Raises:
        DataError: The dataset has none.
    """
    path = dataset.folder / TOKENIZER
    if not path.is_file():
        raise DataError(f"{path}: no such tokenizer; rebuild the dataset with `tokenize`")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # of no kind of its own
        raise DataError(f"{path}: damaged ({error}); rebuild the dataset with `tokenize`") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def opening(tokenizer: Tokenizer, end: int | None) -> list[int]:
    """Return the tokens before a text: what its tokenizer puts there, else the end of another.

    That is where the text of training begins that is packed here.
    """
    whole = tokenizer.encode("a")
    marked = zip(whole.ids, whole.special_tokens_mask, strict=True)
    found = [token for token, _ in takewhile(lambda one: one[1], marked)]
    return found or ([] if end is None else [end])


@dataclass(frozen=True)
class StopCriteria:
    """Where a generated answer ends, and what of it is kept.

    Attributes:
        tokenizer: What tokens are decoded with.
        end: Token that ends an answer; None where there is none.
        until: Texts that end one and are not part of it.
    """

    tokenizer: Tokenizer
    end: int | None
    until: Sequence[str] = ()

    def ended(self, new: list[int]) -> bool:
        """Whether these new tokens are a whole answer."""
        text = self.tokenizer.decode(new) if self.until else ""
        return new[-1] == self.end or any(stop in text for stop in self.until)

    def text(self, answer: list[int]) -> str:
        """Return the answer without its end."""
        kept = answer[:-1] if answer[-1] == self.end else answer
        text: str = self.tokenizer.decode(kept)
        for stop in self.until:
            text = text.partition(stop)[0]
        return text


@dataclass(frozen=True)
class Request:
    """One prompt: its tokens, room for new ones, and whether new ones are a whole answer."""

    prompt: list[int]
    new_tokens: int
    ended: Callable[[list[int]], bool]


@dataclass
class Generator:
    """Generates greedy answers.

    Attributes:
        scorer: The model.
        chunk: Positions computed at one time.
        share: Whether a prompt reuses the prefix it shares with the one before.
        batch_size: Most prompts in a batch of ``chunk`` positions, if answers have one token.
        computed: Prompt positions computed so far.
        given: Prompt positions asked for so far.
    """

    scorer: Scorer
    chunk: int
    share: bool = True
    batch_size: int = 1
    computed: int = 0
    given: int = 0

    def generate(self, requests: Sequence[Request]) -> list[list[int]]:
        """New tokens of every request, in the order of the requests."""
        answers = self._one_token_each(requests)
        capacity = max((len(one.prompt) + one.new_tokens for one in requests), default=0)
        cache, held = self.scorer.new_cache(capacity), list[int]()
        others = (index for index in range(len(requests)) if index not in answers)
        for index in sorted(others, key=lambda i: requests[i].prompt):
            request = requests[index]
            # The last token is computed anew: its state is what the answer starts from.
            common = min(common_prefix(held, request.prompt), len(request.prompt) - 1)
            if not self.share:
                cache, common = self.scorer.new_cache(capacity), 0
            cache.truncate(common)
            answers[index] = list(self._answer(request, common, cache))
            held = request.prompt
        return [answers[index] for index in range(len(requests))]

    def _one_token_each(self, requests: Sequence[Request]) -> dict[int, list[int]]:
        """Answer short prompts for one token, in batches of one length, by index of the request."""
        indices, answers = defaultdict[int, list[int]](list), dict[int, list[int]]()
        for index, request in enumerate(requests):
            length = len(request.prompt)
            if request.new_tokens == 1 and self._batch(length) > 1:
                indices[length].append(index)
        for length, group in indices.items():
            for start in range(0, len(group), self._batch(length)):
                batch = group[start : start + self._batch(length)]
                tokens = torch.tensor([requests[index].prompt for index in batch])
                answers |= zip(batch, self.scorer.greedy_tokens(tokens, [-1]).tolist(), strict=True)
                self.given += tokens.numel()
                self.computed += tokens.numel()
        return answers

    def _batch(self, length: int) -> int:
        return min(self.batch_size, self.chunk // length)

    def _answer(self, request: Request, common: int, cache: TruncatableCache) -> Iterator[int]:
        prompt, new = request.prompt, list[int]()
        self.given += len(prompt)
        self.computed += len(prompt) - common
        for start in range(common, len(prompt), self.chunk):
            choice = self.scorer.next_token(prompt[start : start + self.chunk], cache)
        while True:
            new.append(choice)
            yield choice
            if len(new) == request.new_tokens or request.ended(new):
                return
            choice = self.scorer.next_token([choice], cache)


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
