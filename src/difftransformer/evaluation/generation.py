"""Greedy generation with prefix caching, and the encoding of prompts.

Prompts are answered in sorted order, so that each follows the prompt with which it shares the
longest prefix; the KV cache is truncated to that prefix and the rest computed. Short prompts for
one token can be computed in batches. The answers equal those of prompts computed one by one.
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
    """Return the encoding of a text: no special tokens are added to it or parsed from it."""
    return tokenizer.encode(text, add_special_tokens=False)


def open_tokenizer(dataset: PackedDataset) -> Tokenizer:
    """Return a packed dataset's tokenizer, which encodes special tokens in a text as plain text.

    Raises:
        DataError: The dataset's tokenizer is missing or damaged.
    """
    path = dataset.folder / TOKENIZER
    if not path.is_file():
        raise DataError(f"{path}: no such tokenizer; rebuild the dataset with `tokenize`")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises plain Exception
        raise DataError(f"{path}: damaged ({error}); rebuild the dataset with `tokenize`") from None
    tokenizer.encode_special_tokens = True
    return tokenizer


def prefix_token_ids(tokenizer: Tokenizer, eos_id: int | None) -> list[int]:
    """Return the token ids to put before a text that a model reads.

    These are the special tokens that the tokenizer adds before a text; without any, the
    end-of-text token, since in packed training text a document follows the end of another.
    """
    encoding = tokenizer.encode("a")
    pairs = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    prefix = [token for token, _ in takewhile(lambda pair: pair[1], pairs)]
    return prefix or ([] if eos_id is None else [eos_id])


@dataclass(frozen=True)
class StopCriteria:
    """Conditions that end a generated answer: an end token, or one of several texts.

    Attributes:
        tokenizer: Decodes the tokens.
        eos_id: Token that ends an answer; None: there is none.
        until: Texts that end an answer and are not part of it.
    """

    tokenizer: Tokenizer
    eos_id: int | None
    until: Sequence[str] = ()

    def should_stop(self, new_tokens: list[int]) -> bool:
        """Return whether the tokens generated so far end an answer."""
        text = self.tokenizer.decode(new_tokens) if self.until else ""
        return new_tokens[-1] == self.eos_id or any(stop in text for stop in self.until)

    def text(self, new_tokens: list[int]) -> str:
        """Return the text of a generated answer, without the token or text that ends it."""
        tokens = new_tokens[:-1] if new_tokens[-1] == self.eos_id else new_tokens
        text: str = self.tokenizer.decode(tokens)
        for stop in self.until:
            text = text.partition(stop)[0]
        return text


@dataclass(frozen=True)
class Request:
    """A generation request: prompt token ids, maximum answer tokens, and a test for its end."""

    prompt: list[int]
    max_new_tokens: int
    should_stop: Callable[[list[int]], bool]


@dataclass
class Generator:
    """Generates greedy answers to prompts, which can share a KV cache of their common prefixes.

    Attributes:
        scorer: The model.
        chunk: Positions of a prompt computed at one time.
        reuse_prefix: Whether prompts share a prefix cache.
        batch_size: Maximum number of prompts per batch; only one-token answers are batched, in
            batches of at most ``chunk`` positions.
        computed_positions: Prompt positions computed so far.
        prompt_positions: Prompt positions of the requests so far, cached ones included.
    """

    scorer: Scorer
    chunk: int
    reuse_prefix: bool = True
    batch_size: int = 1
    computed_positions: int = 0
    prompt_positions: int = 0

    def generate(self, requests: Sequence[Request]) -> list[list[int]]:
        """Return the generated token ids of each request, in the order of the requests."""
        answers = self._generate_single_tokens(requests)
        capacity = max((len(r.prompt) + r.max_new_tokens for r in requests), default=0)
        cache, cached = self.scorer.new_cache(capacity), list[int]()
        remaining = (index for index in range(len(requests)) if index not in answers)
        for index in sorted(remaining, key=lambda i: requests[i].prompt):
            request = requests[index]
            # The last token is computed again: the answer starts from its hidden state.
            common = min(common_prefix(cached, request.prompt), len(request.prompt) - 1)
            if not self.reuse_prefix:
                cache, common = self.scorer.new_cache(capacity), 0
            cache.truncate(common)
            answers[index] = list(self._generate(request, common, cache))
            cached = request.prompt
        return [answers[index] for index in range(len(requests))]

    def _generate_single_tokens(self, requests: Sequence[Request]) -> dict[int, list[int]]:
        """Answer short prompts for one token, in batches of one length, by index of the request."""
        indices, answers = defaultdict[int, list[int]](list), dict[int, list[int]]()
        for index, request in enumerate(requests):
            length = len(request.prompt)
            if request.max_new_tokens == 1 and self._max_batch(length) > 1:
                indices[length].append(index)
        for length, group in indices.items():
            for start in range(0, len(group), self._max_batch(length)):
                batch = group[start : start + self._max_batch(length)]
                tokens = torch.tensor([requests[index].prompt for index in batch])
                answers |= zip(batch, self.scorer.greedy_tokens(tokens, [-1]).tolist(), strict=True)
                self.prompt_positions += tokens.numel()
                self.computed_positions += tokens.numel()
        return answers

    def _max_batch(self, length: int) -> int:
        return min(self.batch_size, self.chunk // length)

    def _generate(self, request: Request, common: int, cache: TruncatableCache) -> Iterator[int]:
        prompt, new_tokens = request.prompt, list[int]()
        self.prompt_positions += len(prompt)
        self.computed_positions += len(prompt) - common
        for start in range(common, len(prompt), self.chunk):
            token = self.scorer.next_token(prompt[start : start + self.chunk], cache)
        while True:
            new_tokens.append(token)
            yield token
            if len(new_tokens) == request.max_new_tokens or request.should_stop(new_tokens):
                return
            token = self.scorer.next_token([token], cache)


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the common prefix of two token sequences."""
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
