"""The words of generated rows: a tokenizer of one word for each token.

Of recall rows a key is a word such as ``k07``, a value ``v12``, a filler ``f63``. All words are
equally long, so none is part of another and an answer can be found in a text by looking for its
word. Of labelled items a label is a word such as ``l07``, a word of class 12 ``c12a``.
"""

import json
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING

from difftransformer.config.classification import ClassificationConfig
from difftransformer.config.data import GeneratedRows, RecallConfig
from difftransformer.data.packed import TokenizerEntry, file_sha256
from difftransformer.data.recall import RecallVocabulary
from difftransformer.provenance import atomic

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_LETTERS = {"fillers": "f", "keys": "k", "values": "v"}


def row_words(settings: GeneratedRows) -> list[str]:
    """Words of generated rows in the order of their token ids."""
    if isinstance(settings, RecallConfig):
        return recall_words(settings)
    return label_words(settings) + class_words(settings)


def label_words(settings: ClassificationConfig) -> list[str]:
    """Words of the labels of items."""
    digits = len(str(settings.num_labels - 1))
    return [f"l{label:0{digits}d}" for label in range(settings.num_labels)]


def class_words(settings: ClassificationConfig) -> list[str]:
    """Words of one class after the other: its number, and a number or letter for the word."""
    classes, words = settings.num_classes, settings.words_per_class
    digits = len(str(classes - 1))
    lettered = words <= len(ascii_lowercase)
    names = ascii_lowercase if lettered else [f"_{word}" for word in range(words)]
    return [f"c{number:0{digits}d}{name}" for number in range(classes) for name in names[:words]]


def recall_words(settings: RecallConfig) -> list[str]:
    """Words in the order of their token ids: a letter for the range, the number in the range."""
    vocabulary = RecallVocabulary.of(settings)
    digits = len(str(max(map(len, vocabulary)) - 1))
    return [
        f"{_LETTERS[name]}{number:0{digits}d}"
        for name, ids in zip(vocabulary._fields, vocabulary, strict=True)
        for number in range(len(ids))
    ]


def word_tokenizer(settings: GeneratedRows) -> "Tokenizer":
    """Return the tokenizer: words are split at white space, and decoded with blanks between."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: index for index, word in enumerate(row_words(settings))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def write_words(folder: Path, settings: GeneratedRows) -> TokenizerEntry:
    """Write tokenizer.json and tokenizer_config.json, which AutoTokenizer loads; describe them."""
    description = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "difftransformer": {"kind": "words"},
    }
    path = folder / "tokenizer.json"
    atomic.write_text(folder / "tokenizer_config.json", json.dumps(description, indent=2) + "\n")
    atomic.write_text(path, word_tokenizer(settings).to_str(pretty=True) + "\n")
    return TokenizerEntry(kind="words", sha256=file_sha256(path))
