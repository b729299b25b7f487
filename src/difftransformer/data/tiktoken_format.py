"""Converts tiktoken encodings to the tokenizers library and back, with the same ids.

tiktoken stores ranks of byte strings, tokenizers explicit merges. A token of several bytes is the
merge of the two parts that its bytes give when merged by lower ranks.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken
    from tokenizers import Tokenizer

# The split patterns without tiktoken's possessive quantifiers, which the tokenizers library reads
# differently; they match as the published originals.
_GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    "gpt2": _GPT2_PATTERN,
    "r50k_base": _GPT2_PATTERN,
    "p50k_base": _GPT2_PATTERN,
    "cl100k_base": _CL100K_PATTERN,
}


def to_tokenizer(encoding: "tiktoken.Encoding") -> "Tokenizer":
    """Return a tiktoken encoding as a tokenizer of the tokenizers library, with the same ids.

    Vocabulary, split pattern and special tokens are converted.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    ranks: dict[bytes, int] = encoding._mergeable_ranks
    letters = _bytes_to_unicode()

    def spell(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    vocabulary = {spell(token): rank for token, rank in ranks.items()}
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    parts = [_parts(token, rank, ranks) for token, rank in ordered]
    merges = [(spell(part[0]), spell(part[1])) for part in parts if len(part) == 2]
    # Special tokens are in the vocabulary, since their ids are not contiguous with the others.
    special: dict[str, int] = encoding._special_tokens
    tokenizer = Tokenizer(models.BPE(vocabulary | special, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(PATTERNS[encoding.name]), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    assert all(tokenizer.token_to_id(token) == number for token, number in special.items())
    return tokenizer


def to_encoding(tokenizer: "Tokenizer", name: str) -> "tiktoken.Encoding":
    """Return the tiktoken encoding of a tokenizer that `to_tokenizer` made.

    Tiktoken encodes several times faster.
    """
    import tiktoken

    added = tokenizer.get_added_tokens_decoder()
    special = {token.content: number for number, token in added.items()}
    bytes_of = {letter: byte for byte, letter in _bytes_to_unicode().items()}
    ranks = {
        bytes(bytes_of[letter] for letter in token): rank
        for token, rank in tokenizer.get_vocab().items()
        if token not in special
    }
    return tiktoken.Encoding(
        name, pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens=special
    )


def _parts(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """Return the parts of a token after all merges of ranks below `rank`."""
    parts = [token[index : index + 1] for index in range(len(token))]
    while True:
        pairs = [ranks.get(left + right, rank) for left, right in pairwise(parts)]
        if not pairs or min(pairs) >= rank:
            return parts
        at = pairs.index(min(pairs))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _bytes_to_unicode() -> dict[int, str]:
    """Return GPT-2's printable letter for each byte: itself if printable, else from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable}
    return letters | {byte: chr(256 + index) for index, byte in enumerate(unprintable)}
