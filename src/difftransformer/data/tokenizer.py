"""Tokenizers: trained here, or converted from tiktoken and Hugging Face.

All are stored as two files that transformers' AutoTokenizer loads: ``tokenizer.json`` (format of
the tokenizers library) and ``tokenizer_config.json``, which names the end-of-text token and, under
"difftransformer", the kind.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftransformer.config.data import DatasetConfig
from difftransformer.config.tokenizers import (
    BpeTokenizer,
    HuggingFaceTokenizer,
    NoTokenizer,
    TiktokenTokenizer,
)
from difftransformer.data.bpe_sample import bpe_sample
from difftransformer.data.documents import empty_split_message
from difftransformer.data.packed import PackedDataset, TokenizerEntry
from difftransformer.errors import ConfigError, DataError, in_one_line
from difftransformer.provenance import atomic
from difftransformer.provenance.checksums import file_sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokenizers import Tokenizer

END_OF_TEXT = "<|endoftext|>"
CONFIG = "tokenizer_config.json"


def train_tokenizer(dataset: DatasetConfig, output: Path, base: Path | None = None) -> None:
    """Write the dataset's tokenizer: train a BPE, or load a tiktoken or Hugging Face one.

    Args:
        dataset: Settings of the dataset; a BPE is trained on its training split, mixed by weights.
        output: Path of tokenizer.json; tokenizer_config.json is written first, next to it.
        base: Path of the base dataset's tokenizer.json, which is copied byte for byte, so that
            both datasets have the same token ids.

    Raises:
        DataError: The corpus is too small for the vocabulary, or the tokenizer cannot be loaded.
        ConfigError: The dataset has generated rows, which need no tokenizer.
    """
    if base is not None:
        _copy_base(base, output)
        return
    config = dataset.tokenizer
    match config:
        case BpeTokenizer():
            tokenizer, eos = _train_bpe(dataset, config), END_OF_TEXT
        case TiktokenTokenizer():
            tokenizer, eos = _resolve_tiktoken(config), END_OF_TEXT
        case HuggingFaceTokenizer():
            tokenizer, eos = _resolve_huggingface(config)
        case NoTokenizer():
            raise ConfigError("dataset.tokenizer: kind none has no tokenizer to train")
    write_tokenizer(output, tokenizer, config.model_dump(mode="json"), eos)


def write_tokenizer(
    path: Path, tokenizer: "Tokenizer", kind: dict[str, Any], eos: str | None = None
) -> None:
    """Write tokenizer_config.json, then tokenizer.json at ``path``."""
    description: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    description |= {} if eos is None else {"eos_token": eos}
    description |= {"clean_up_tokenization_spaces": False, "difftransformer": kind}
    atomic.write_text(path.with_name(CONFIG), json.dumps(description, indent=2) + "\n")
    atomic.write_text(path, tokenizer.to_str(pretty=True) + "\n")


def require_same_tokenizer_as_model(tokenizer: Any, dataset: PackedDataset, name: str) -> None:
    """Check that a dataset was tokenized with the token ids of a pretrained model.

    Args:
        tokenizer: The model's transformers tokenizer.
        dataset: The dataset.
        name: Name of the model, for error messages.

    Raises:
        DataError: The dataset was made with another tokenizer.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    text = "" if backend is None else backend.to_str(pretty=True) + "\n"
    if hashlib.sha256(text.encode()).hexdigest() != dataset.manifest.tokenizer.sha256:
        raise DataError(
            f"{dataset.folder}: has other token ids than {name}: give it the tokenizer of that "
            f"model (`kind: huggingface`, `name: {name}`)"
        )


def _copy_base(base: Path, output: Path) -> None:
    for source, target in ((base.with_name(CONFIG), output.with_name(CONFIG)), (base, output)):
        try:
            text = source.read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(
                f"{source}: cannot be read ({error.strerror}); make the tokenizer of the base with "
                "`train_tokenizer`"
            ) from None
        atomic.write_text(target, text)


class EncodedWindows(NamedTuple):
    """Token ids of windows of a text, and the estimated number of truncated tokens after them."""

    tokens: list[NDArray[np.uint32]]
    cut: int


class TextTokenizer:
    """A tokenizer that is loaded to encode documents.

    Attributes:
        vocab_size: One more than the largest id.
        eos_id: Id of the end-of-text token, which ends each document.
        entry: Manifest entry of the tokenizer.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        rebuild = "rebuild it with `train_tokenizer`"
        try:
            tokenizer = Tokenizer.from_file(str(path))
            description = json.loads(path.with_name(CONFIG).read_text(encoding="utf-8"))
            eos, kind = description["eos_token"], description["difftransformer"]["kind"]
            eos_id = tokenizer.token_to_id(eos)
            self.entry = TokenizerEntry(kind=kind, sha256=file_sha256(path), eos_id=eos_id)
            self._encode_piece = _encoder(tokenizer, description["difftransformer"])
        except Exception as error:  # the tokenizers library raises plain Exception
            raise DataError(
                f"{path}: cannot be read with its {CONFIG} ({in_one_line(error)}); {rebuild}"
            ) from None
        if eos_id is None:
            raise DataError(
                f"{path}: its end-of-text token {eos!r} is not in the vocabulary; {rebuild}"
            )
        self.eos_id: int = eos_id
        self.vocab_size = max(tokenizer.get_vocab().values()) + 1

    def encode(
        self, texts: list[str], max_document_tokens: int | None = None
    ) -> list[NDArray[np.uint32]]:
        """Return the token ids of texts, each with an end-of-text token.

        A text is truncated to ``max_document_tokens``, including this token.
        """
        return [
            self.encode_windows(text, max_document_tokens, range(1)).tokens[0] for text in texts
        ]

    def encode_windows(self, text: str, size: int | None, numbers: range) -> EncodedWindows:
        """Return the token ids of some windows of a text; windows beyond its end are left out.

        Args:
            text: The text to encode.
            size: Tokens per window, including an end-of-text token; None: one window for the text.
            numbers: Indices of the windows, from 0.
        """
        length = None if size is None else size - 1
        ids, cut = self._ids(text, None if length is None else length * numbers.stop)
        parts = (ids if length is None else ids[n * length : (n + 1) * length] for n in numbers)
        windows = [part for n, part in zip(numbers, parts, strict=True) if part or n == 0]
        return EncodedWindows(
            [np.array([*part, self.eos_id], dtype=np.uint32) for part in windows], cut
        )

    def _ids(self, text: str, max_ids: int | None) -> tuple[list[int], int]:
        """Encode, in pieces where that gives the same ids: a book at once takes gigabytes."""
        ids: list[int] = []
        characters = 0
        for piece in _pieces(text) if self.entry.kind in _SPLITS_AT_SPACES else [text]:
            ids += self._encode_piece(piece)
            characters += len(piece)
            if max_ids is not None and len(ids) >= max_ids:
                break
        if max_ids is None:
            return ids, 0
        return ids[:max_ids], max(0, round(len(ids) * len(text) / max(characters, 1)) - max_ids)


def _encoder(tokenizer: "Tokenizer", description: dict[str, str]) -> "Callable[[str], list[int]]":
    """Return the fastest function from a text to its ids without special tokens."""
    if description["kind"] == "tiktoken":
        from difftransformer.data.tiktoken_format import to_encoding

        return to_encoding(tokenizer, description["name"]).encode_ordinary
    # A document that spells out a special token is text, not a command.
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids


# The patterns of these kinds never join a space to a visible character before it, or a digit to a
# letter before it (frequent in dumps without spaces), and have no lookbehind.
_SPLITS_AT_SPACES = ("bpe", "tiktoken")
_BETWEEN_WORDS = re.compile(r"(?<=[!-~])(?= )|(?<=[A-Za-z])(?=[0-9])")
_PIECE_CHARACTERS = 1 << 15


def _pieces(text: str, size: int = _PIECE_CHARACTERS) -> "Iterator[str]":
    """Split a text between words into pieces of at least `size` characters."""
    assert size > 0
    start = 0
    while match := _BETWEEN_WORDS.search(text, start + size):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def _train_bpe(dataset: DatasetConfig, config: BpeTokenizer) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(bpe_sample(dataset, config.sample_bytes), trainer)
    if (learned := tokenizer.get_vocab_size()) < config.vocab_size:
        sources = ", ".join(dataset.sources)
        size = sum(len(text.encode()) for text in bpe_sample(dataset, config.sample_bytes))
        if not size:
            raise DataError(empty_split_message(dataset, dataset.sources, "train"))
        raise DataError(
            f"sources {sources}: {size} bytes of training text give a vocabulary of {learned}, the "
            f"dataset's tokenizer.vocab_size is {config.vocab_size}: lower it, or add text"
        )
    return tokenizer


def _resolve_tiktoken(config: TiktokenTokenizer) -> "Tokenizer":
    import tiktoken

    from difftransformer.data.tiktoken_format import to_tokenizer

    try:
        encoding = tiktoken.get_encoding(config.name)
    except Exception as error:  # requests errors, checksum errors
        raise DataError(
            f"tiktoken encoding {config.name} cannot be loaded ({in_one_line(error)}); allow "
            "access to its download, or set TIKTOKEN_CACHE_DIR to a folder that holds it"
        ) from None
    return to_tokenizer(encoding)


def _resolve_huggingface(config: HuggingFaceTokenizer) -> "tuple[Tokenizer, str]":
    local = Path(config.name).is_dir()
    if not local and config.revision is None:
        raise ConfigError(
            f"dataset.tokenizer.revision: {config.name} is not a local folder, so it needs a "
            "pinned revision (a commit or tag of the hub)"
        )
    from transformers import AutoTokenizer

    revision = None if local else config.revision
    try:
        loaded = AutoTokenizer.from_pretrained(
            config.name, revision=revision, trust_remote_code=False
        )
    except Exception as error:  # hub, network and parsing errors of many kinds
        raise DataError(
            f"tokenizer {config.name} cannot be loaded ({in_one_line(error)}); check name, "
            "revision and network"
        ) from None
    eos = config.eos_token or loaded.eos_token
    if eos is None:
        also = "" if config.of_model else ", or set the dataset's tokenizer.eos_token"
        raise DataError(
            f"tokenizer {config.name} declares no end-of-text token: name it in its {CONFIG}, such "
            f'as "eos_token": "</s>"{also}'
        )
    if not hasattr(loaded, "backend_tokenizer"):
        raise DataError(f"tokenizer {config.name} has no tokenizer.json (fast) form")
    if config.of_model:
        _require_embeddings(config, max(loaded.backend_tokenizer.get_vocab().values()) + 1)
    return loaded.backend_tokenizer, str(eos)


def _require_embeddings(config: HuggingFaceTokenizer, ids: int) -> None:
    """Check that the model beside a tokenizer has an embedding for each id."""
    from transformers import PreTrainedConfig

    model_config, _ = PreTrainedConfig.get_config_dict(config.name, revision=config.revision)
    rows = model_config.get("text_config", model_config).get("vocab_size")
    if isinstance(rows, int) and ids > rows:
        raise DataError(
            f"{config.name}: its tokenizer has {ids} ids, its embedding {rows} rows: give it the "
            f"tokenizer it was trained with, or save it with more rows, by transformers' "
            f"resize_token_embeddings({ids})"
        )
