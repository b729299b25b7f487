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
    found = zip(WORDS, TextTokenizer(tokenizer).encode([*map(words, WORDS)]), strict=True)
    return {name: tokens[:-1].tolist() for name, tokens in found}


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
    found = excerpts(dataset, "books", open_sources(dataset)["books"], "train", cursor)
    opened, cuts = TextTokenizer(tokenizer), dataset.long_documents == "cut"
    encoded = encode_documents(found, opened, ThreadPoolExecutor(1), 1, SIZE, cuts)
    return MixedStream([encoded], Mixture([1.0]), None, [cursor])


def test_windows_come_in_rounds_and_hold_the_whole_text(
    books: dict[str, Any], configure: Configure, tokenizer: Path
) -> None:
    found = [one.tokens.tolist() for one in stream(configure(**books), tokenizer, Cursor())]
    texts = ids(tokenizer)
    # The one with the smallest hash is held out.
    trained = {name: one for name, one in texts.items() if [*one[: SIZE - 1], 0] in found}
    assert len(trained) == 4
    windows = {
        name: [[*one[at : at + SIZE - 1], 0] for at in range(0, len(one), SIZE - 1)]
        for name, one in trained.items()
    }
    order = [
        window
        for first, behind in ((0, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64))
        for name in windows
        for window in windows[name][first:behind]
    ]
    assert max(map(len, windows.values())) > 8
    assert found == order


def test_reading_goes_on_behind_any_window(
    books: dict[str, Any], configure: Configure, tokenizer: Path
) -> None:
    dataset = configure(**books)

    def plain(found: Any) -> list[list[int]]:
        return [one.tokens.tolist() for one in found]

    whole = plain(stream(dataset, tokenizer, Cursor()))
    for stop in range(1, len(whole)):
        begun = stream(dataset, tokenizer, Cursor())
        head: list[MixedDocument] = list(islice(begun, stop))
        rest = stream(dataset, tokenizer, begun.cursors[0])
        assert plain(head) + plain(rest) == whole, stop


def test_splitting_is_the_same_for_any_number_of_workers_and_loses_nothing(
    books: dict[str, Any], pack: Pack, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first, second = pack("one", **books), pack("two", workers=2, **books)
    assert first.manifest == second.manifest and len(first.manifest.splits["train"].shards) > 3
    entry = first.manifest.sources["books"]
    assert entry.blank == 2 and "source books: 2 documents without text" in caplog.text
    assert entry.truncated["train"].documents == entry.truncated["validation"].documents == 0
    whole = sum(map(len, ids(tokenizer).values()))
    ends = sum(entry.documents.values())
    assert sum(entry.tokens.values()) == whole + ends
    again = pack("one", **books)
    assert again.manifest == first.manifest


def test_a_token_behind_a_round_is_not_lost(
    configure: Configure, tokenizer: Path, tmp_path: Path
) -> None:
    """Of text in which each byte is a token; what follows windows 0, 1, 3 and 7 is one token."""
    for rounds, windows in enumerate((1, 2, 4, 8)):
        length = windows * (SIZE - 1) + 1
        text = "".join(chr(1 + number % 8) for number in range(length))
        assert len(TextTokenizer(tokenizer).encode([text])[0]) == length + 1
        path = tmp_path / f"{rounds}.jsonl"
        path.write_text("".join(json.dumps({"text": one}) + "\n" for one in (text, text[::-1])))
        source = {"kind": "files", "globs": [str(path)], "license": "x"}
        options = {"max_document_tokens": SIZE, "long_documents": "split"}
        dataset = configure(sources={"books": source}, validation_share=1e-9, **options)
        found = [one.tokens.tolist() for one in stream(dataset, tokenizer, Cursor())]
        assert sum(len(one) - 1 for one in found) == length and len(found) == windows + 1


def test_a_small_budget_is_not_one_book(books: dict[str, Any], pack: Pack) -> None:
    split = pack("small", **books | {"tokens": 150}).split("train")
    starts = np.concatenate(([0], split.document_ends()[:-1]))
    assert len({tuple(split.tokens[start : start + 1]) for start in starts}) >= 3


def test_what_is_cut_off_is_counted_and_the_cure_named(
    books: dict[str, Any], pack: Pack, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    manifest = pack("cut", **books | {"long_documents": "cut", "tokens": 5000}).manifest
    entry = manifest.sources["books"]
    over = [len(one) - (SIZE - 1) for one in ids(tokenizer).values()]
    assert sum(one.tokens for one in entry.truncated.values()) == sum(
        one for one in over if one > 0
    )
    assert sum(one.documents for one in entry.truncated.values()) == sum(one > 0 for one in over)
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


def test_documents_without_text_are_counted_once_behind_a_budget_too(
    books: dict[str, Any], pack: Pack
) -> None:
    assert pack("blank", **books | {"tokens": 60}).manifest.sources["books"].blank <= 1
    upsampled = books | {"long_documents": "cut", "upsampling": {"full_length": 10}}
    assert pack("upsampled", **upsampled).manifest.sources["books"].blank == 2
