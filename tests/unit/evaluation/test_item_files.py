"""Reading benchmark items from JSON Lines files."""

import gzip
from pathlib import Path

import pytest

from difftransformer.errors import DataError
from difftransformer.evaluation.item_files import jsonl_file, read_items

LINES = b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": 2}\n'


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_items_may_begin_with_a_byte_order_mark(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"test{ending}"
    path.write_bytes(gzip.compress(LINES) if ending.endswith("gz") else LINES)
    assert list(read_items(path)) == [(f"{path}: line {n}", {"a": a}) for n, a in ((1, 1), (3, 2))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"a": 1}'.encode("utf-16"), r"test\.jsonl: is UTF-16; save it as UTF-8"),
        (b'[\n{"a": 1}\n]', r"line 1: not JSON .*the file is an array: write one object per line"),
        (b'{"a": "\xe4"}', r"line 1: not JSON .*0xe4"),
    ],
)
def test_items_in_an_unsupported_format_are_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "test.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_items(path))


@pytest.mark.parametrize("link", ["task/test.jsonl", "task"])
def test_links_to_items_outside_their_folder_are_refused(tmp_path: Path, link: str) -> None:
    root, secret = tmp_path / "items", tmp_path / "secret"
    for folder in (root, secret):
        folder.mkdir()
    (secret / "test.jsonl").write_text("{}")
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(secret if link == "task" else secret / "test.jsonl")
    with pytest.raises(DataError, match=r"task/test.jsonl: is a link to .*secret") as caught:
        jsonl_file(root, "task", "test")
    assert "\n" not in str(caught.value)
    assert jsonl_file(root, "task", "train") is None
    assert jsonl_file(root, "task", "test", bundled=True) is not None
    (tmp_path / "mine").symlink_to(secret.parent)
    assert jsonl_file(tmp_path / "mine", "secret", "test") is not None
