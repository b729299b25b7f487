from typing import Any

import pytest
from pydantic import ValidationError

from difftransformer.config.data import DatasetConfig
from difftransformer.config.generated_rows import RecallConfig

STDLIB = {"kind": "builtin", "name": "stdlib_text"}
RECALL = {"kind": "builtin", "name": "recall"}
FILES = {"kind": "files", "globs": ["a"], "license": "MIT"}
BPE = {"kind": "bpe", "vocab_size": 512}


def configure(**settings: Any) -> DatasetConfig:
    return DatasetConfig.model_validate({"sources": {"a": STDLIB}, "tokenizer": BPE} | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sources": {}}, "at least 1 item"),
        ({"sources": {"a": {"kind": "ftp"}}}, "ftp"),
        ({"sources": {"a": FILES | {"globs": []}}}, "at least 1 item"),
        ({"sources": {"a": {"kind": "files", "globs": ["a"]}}}, "license"),
        ({"sources": {"a": STDLIB | {"weight": 0}}}, "greater than 0"),
        ({"sources": {"a": {"kind": "hub", "dataset": "a/b", "license": "x"}}}, "revision"),
        ({"tokens": 1.5}, "tokens"),
        ({"tokenz": 1}, "tokenz"),
        ({"validation_share": 1.0}, "less than 1"),
        ({"when_exhausted": "repeat"}, "never end"),
        ({"recall": {}}, "go together"),
        ({"tokenizer": {"kind": "none"}}, "kind none"),
        ({"sources": {"a": RECALL}, "recall": {}, "tokens": 9}, "kind none"),
        ({"sources": {"a": RECALL}, "recall": {}, "tokenizer": {"kind": "none"}}, "never end"),
        ({"upsampling": {}}, "full_length"),
        ({"upsampling": {"full_length": 9, "power": -1.0}}, "power"),
        (
            {
                "sources": {"a": RECALL},
                "recall": {},
                "tokenizer": {"kind": "none"},
                "tokens": 9,
                "upsampling": {"full_length": 9},
            },
            "upsampling is for documents",
        ),
        ({"sources": {"a": RECALL, "b": STDLIB}, "recall": {}}, "cannot be mixed"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        configure(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"row_length": 39}, "at least 40"), ({"num_values": 3}, "max_needles 4 is more than")],
)
def test_rows_that_cannot_be_laid_out_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RecallConfig.model_validate(settings)


def test_vocabulary_is_known_before_the_tokenizer_where_settings_tell_it() -> None:
    rows = {"sources": {"a": RECALL}, "recall": {}, "tokens": 64, "tokenizer": {"kind": "none"}}
    hub = {"kind": "huggingface", "name": "owner/name", "revision": "1"}
    assert configure().vocab_size == 512
    assert configure(tokenizer={"kind": "tiktoken"}).vocab_size == 100_277
    assert configure(**rows).vocab_size == 128
    assert configure(tokenizer=hub).vocab_size is None


def test_validation_budget_follows_the_training_budget() -> None:
    assert configure().validation_budget is None
    assert configure(tokens=1000).validation_budget == 20
    assert configure(tokens=1000, validation_tokens=7).validation_budget == 7
