"""Recall rows as words: one for each token, there and back, in every library that reads them."""

from pathlib import Path

import numpy as np

from difftransformer.config.generated_rows import RecallConfig
from difftransformer.data.recall import RecallVocabulary, training_rows
from difftransformer.data.rows import recall_words, word_tokenizer, write_words

DEFAULT = RecallConfig()


def test_words_say_what_a_token_is() -> None:
    words = recall_words(DEFAULT)
    vocabulary = RecallVocabulary.of(DEFAULT)
    assert len(words) == len(set(words)) == DEFAULT.vocab_size
    assert words[0] == "f00" and words[vocabulary.keys.start + 7] == "k07"
    assert words[vocabulary.values.start + 12] == "v12"
    assert not any(a != b and a in b for a in words for b in words)


def test_rows_survive_being_written_and_read() -> None:
    tokenizer = word_tokenizer(DEFAULT)
    for row in training_rows(DEFAULT, 20, np.random.default_rng(0)).tolist():
        assert tokenizer.encode(tokenizer.decode(row)).ids == row


def test_transformers_reads_the_files(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    entry = write_words(tmp_path, DEFAULT)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded("f00 k07 v12")["input_ids"] == [0, 71, 108]
    assert loaded.decode([0, 71, 108]) == "f00 k07 v12"
    assert entry.kind == "words"
