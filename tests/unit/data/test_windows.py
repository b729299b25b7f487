"""Splitting long documents into windows, interleaved in rounds."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from difftransformer.config.data import DatasetConfig
from difftransformer.data.documents import Cursor
from difftransformer.data.mixture import MixedDocument, MixedStream, Mixture
from difftransformer.data.packed import PackedDataset
from difftransformer.data.parallel_encoding import encode_documents
from difftransformer.data.sources import open_sources
from difftransformer.data.tokenizer import TextTokenizer
from difftransformer.data.windows import excerpts

Configure = Callable[..., DatasetConfig]
Pack = Callable[..., PackedDataset]
SIZE = 50
WORDS = {"a": 150, "b": 3, "c": 300, "d": 20, "e": 75}


def words(name: str) -> str:
    return f"{name} " + " ".join(f"{name}{number}" for number in range(WORDS[name]))


def ids(tokenizer: Path) -> dict[str, list[int]]:
    """Token ids of each text without its end."""
    encoded = zip(WORDS, TextTokenizer(tokenizer).encode([*map(words, WORDS)]), strict=True)
    return {name: tokens[:-1].tolist() for name, tokens in encoded}


@pytest.fixture
def books(tmp_path: Path) -> dict[str, Any]:
    """Texts of 1 to some 20 windows, a null between them and one behind the last."""
    lines = [*({"text": words(name)} for name in WORDS), {"text": None}]
    lines.insert(2, {"text": None})
    path = tmp_path / "books.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    source = {"kind": "files", "globs": [str(path)], "license": "x"}
    return {
        "sources": {"books": source},
        "max_document_tokens": SIZE,
        "long_documents": "split",
        "validation_share": 1e-9,
        "shard_tokens": 120,
    }


def stream(dataset: DatasetConfig, tokenizer: Path, cursor: Cursor) -> MixedStream:
    """The training split without a budget, from a cursor on."""
    texts = excerpts(dataset, "books", open_sources(dataset)["books"], "train", cursor)
    opened, cuts = TextTokenizer(tokenizer), dataset.long_documents == "cut"
    encoded = encode_documents(texts, opened, ThreadPoolExecutor(1), 1, SIZE, cuts)
    return MixedStream([encoded], Mixture([1.0]), None, [cursor])


def test_windows_are_interleaved_in_rounds_and_cover_the_text(
    books: dict[str, Any], configure: Configure, tokenizer: Path
) -> None:
    actual = [
        document.tokens.tolist() for document in stream(configure(**books), tokenizer, Cursor())
    ]
    texts = ids(tokenizer)
    # The text with the smallest hash is held out.
    trained = {name: tokens for name, tokens in texts.items() if [*tokens[: SIZE - 1], 0] in actual}
    assert len(trained) == 4
    windows = {
        name: [[*tokens[at : at + SIZE - 1], 0] for at in range(0, len(tokens), SIZE - 1)]
        for name, tokens in trained.items()
    }
    expected = [
        window
        for first, behind in ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64))
        for name in windows
        for window in windows[name][first:behind]
    ]
    assert max(map(len, windows.values())) > 8
    assert actual == expected


def test_reading_resumes_after_any_window(
    books: dict[str, Any], configure: Configure, tokenizer: Path
) -> None:
    dataset = configure(**books)

    def token_ids(documents: Any) -> list[list[int]]:
        return [document.tokens.tolist() for document in documents]

    expected = token_ids(stream(dataset, tokenizer, Cursor()))
    for stop in range(1, len(expected)):
        begun = stream(dataset, tokenizer, Cursor())
        head: list[MixedDocument] = list(islice(begun, stop))
        rest = stream(dataset, tokenizer, begun.cursors[0])
        assert token_ids(head) + token_ids(rest) == expected, stop


def test_splitting_is_independent_of_workers_and_lossless(
    books: dict[str, Any], pack: Pack, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first, second = pack("one", **books), pack("two", workers=2, **books)
    assert first.manifest == second.manifest and len(first.manifest.splits["train"].shards) > 3
    entry = first.manifest.sources["books"]
    assert entry.blank == 2 and "source books: 2 documents without text" in caplog.text
    assert entry.truncated["train"].documents == entry.truncated["validation"].documents == 0
    text_tokens = sum(map(len, ids(tokenizer).values()))
    ends = sum(entry.documents.values())
    assert sum(entry.tokens.values()) == text_tokens + ends
    again = pack("one", **books)
    assert again.manifest == first.manifest


def test_a_token_after_a_round_is_not_lost(
    configure: Configure, tokenizer: Path, tmp_path: Path
) -> None:
    """Of text in which each byte is a token; what follows windows 0, 1, 3 and 7 is one token."""
    for rounds, windows in enumerate((1, 2, 4, 8)):
        length = windows * (SIZE - 1) + 1
        text = "".join(chr(1 + number % 8) for number in range(length))
        assert len(TextTokenizer(tokenizer).encode([text])[0]) == length + 1
        path = tmp_path / f"{rounds}.jsonl"
        path.write_text("".join(json.dumps({"text": line}) + "\n" for line in (text, text[::-1])))
        source = {"kind": "files", "globs": [str(path)], "license": "x"}
        options = {"max_document_tokens": SIZE, "long_documents": "split"}
        dataset = configure(sources={"books": source}, validation_share=1e-9, **options)
        actual = [document.tokens.tolist() for document in stream(dataset, tokenizer, Cursor())]
        assert sum(len(window) - 1 for window in actual) == length and len(actual) == windows + 1


def test_a_small_budget_covers_several_books(books: dict[str, Any], pack: Pack) -> None:
    split = pack("small", **books | {"tokens": 150}).split("train")
    starts = np.concatenate(([0], split.document_ends()[:-1]))
    assert len({tuple(split.tokens[start : start + 1]) for start in starts}) >= 3


def test_truncation_is_counted_and_the_log_names_a_fix(
    books: dict[str, Any], pack: Pack, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    manifest = pack("cut", **books | {"long_documents": "cut", "tokens": 5000}).manifest
    entry = manifest.sources["books"]
    over = [len(tokens) - (SIZE - 1) for tokens in ids(tokenizer).values()]
    assert sum(split.tokens for split in entry.truncated.values()) == sum(
        excess for excess in over if excess > 0
    )
    assert sum(split.documents for split in entry.truncated.values()) == sum(
        excess > 0 for excess in over
    )
    cut, left = entry.truncated["train"], manifest.splits["train"].tokens
    share = 100 * cut.tokens / (cut.tokens + left)
    assert share > 50
    assert (
        f"source books: {cut.documents} of 4 documents (train) are truncated: {share:.1f}% of "
        f"their text, about {cut.tokens} tokens"
    ) in caplog.messages
    assert (
        f"train: {left} tokens, the budget was 5000: raise max_document_tokens ({SIZE}) or set "
        "long_documents: split, or add text"
    ) in caplog.messages


def test_blank_documents_are_counted_once_with_a_budget(books: dict[str, Any], pack: Pack) -> None:
    assert pack("blank", **books | {"tokens": 60}).manifest.sources["books"].blank <= 1
    upsampled = books | {"long_documents": "cut", "upsampling": {"full_length": 10}}
    assert pack("upsampled", **upsampled).manifest.sources["books"].blank == 2
