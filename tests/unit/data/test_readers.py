"""Reading records from text, JSON Lines and Parquet files, compressed or not."""

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from difftransformer.data import readers
from difftransformer.data.readers import Fields, read_records
from difftransformer.errors import DataError

TEXTS = ["first\nline", "zweite Zeile – ä", "", "x" * 3_000_000, "last"]
LINES = "".join(
    json.dumps({"text": text, "license": f"L{n}"}) + "\n" for n, text in enumerate(TEXTS)
)
FIELDS = Fields("text", "license")

WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".zst": lambda content: b"".join(
        zstandard.compress(content[start : start + 1_000_000])  # several frames in one file
        for start in range(0, len(content), 1_000_000)
    ),
}


def texts(path: Path, start: int = 0) -> list[str]:
    return [record.text for record in read_records(path, FIELDS, start)]


@pytest.mark.parametrize("suffix", WRITERS)
def test_json_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(WRITERS[suffix](LINES.encode()))
    records = list(read_records(path, FIELDS))
    assert [record.text for record in records] == TEXTS
    assert [record.license for record in records] == ["L0", "L1", "L2", "L3", "L4"]
    assert texts(path, start=2) == TEXTS[2:]


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("kind", [".txt", ".md"])
def test_a_text_file_is_one_record(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a{kind}{suffix}"
    path.write_bytes(WRITERS[suffix]("Grüße\n\nzwei".encode()))
    assert texts(path) == ["Grüße\n\nzwei"]
    assert texts(path, start=1) == []


def test_a_byte_order_mark_is_removed_from_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone \xef\xbb\xbf two")
    assert texts(path) == ["one \ufeff two"]
    path.write_bytes(b"\xef\xbb\xbfone\xff")
    with pytest.raises(DataError, match="not UTF-8 at byte 6"):
        texts(path)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_byte_order_mark_before_json_lines_is_skipped(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(WRITERS[suffix](b"\xef\xbb\xbf" + LINES.replace("\n", "\r\n").encode()))
    assert texts(path) == TEXTS


def test_parquet(tmp_path: Path) -> None:
    many = [f"text {n}" for n in range(1000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": many, "license": ["L"] * 1000, "other": [1] * 1000}), path)
    assert texts(path) == many
    assert texts(path, start=700) == many[700:]


def test_skipped_row_groups_are_not_read(tmp_path: Path) -> None:
    many = [f"text {n}" for n in range(1000)]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": many, "license": ["L"] * 1000}), path, row_group_size=300)
    for start in (0, 299, 300, 301, 899, 999, 1000):
        records = list(read_records(path, FIELDS, start))
        assert [(record.number, record.text) for record in records] == list(enumerate(many))[start:]
    group = pq.ParquetFile(path).metadata.row_group(0).column(0)
    with path.open("r+b") as file:
        file.seek(group.dictionary_page_offset)
        file.write(b"\xff" * group.total_compressed_size)
    assert texts(path, start=300) == many[300:]
    with pytest.raises(DataError, match="cannot be read"):
        texts(path, start=299)


def test_blank_lines_are_numbered_but_give_no_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"text": "a"}\n\n{"text": "b"}')
    assert [(r.number, r.text) for r in read_records(path, Fields("text"))] == [(1, "a"), (3, "b")]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("share", [0.0005, 0.5, 0.999])
def test_a_truncated_file_is_an_error(tmp_path: Path, suffix: str, share: float) -> None:
    compressed = WRITERS[suffix](LINES.encode())
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(compressed[: max(3, int(len(compressed) * share))])
    with pytest.raises(DataError, match=rf"a\.jsonl{suffix}: cannot be read, it may be truncated"):
        texts(path)


BAD = {
    "broken.jsonl": (b'{"text": "a"}\n{"text": \n', r"broken\.jsonl, line 2: not JSON"),
    "list.jsonl": (b"[1]\n", "line 1: a JSON object is needed, not list"),
    "field.jsonl": (
        b'{"body": "a", "id": 1}\n',
        "line 1: no field 'text'; it has body, id: set text_field of the source",
    ),
    "empty.jsonl": (b"{}\n", "line 1: no field 'text'; it has none: set text_field"),
    "number.jsonl": (b'{"text": 3}\n', "line 1: field 'text' is int, not text"),
    "latin.jsonl": (b'{"text": "\xe4"}\n', "line 1: not JSON"),
    "latin.txt": (b"ab\xe4", r"latin\.txt: not UTF-8 at byte 2"),
    "noise.jsonl.gz": (b"no gzip", "cannot be read"),
    "noise.jsonl.zst": (b"no zstd", "cannot be read"),
    "noise.parquet": (b"no parquet", "cannot be read"),
    "utf16.txt": ("hello".encode("utf-16"), r"utf16\.txt: is UTF-16; save it as UTF-8 \(`iconv"),
    "utf16.jsonl": (LINES.encode("utf-16"), r"utf16\.jsonl: is UTF-16"),
    "utf16.jsonl.gz": (gzip.compress(LINES.encode("utf-16")), r"utf16\.jsonl\.gz: is UTF-16"),
    "no mark.txt": (b"h\0e\0l\0l\0o\0", r"no mark\.txt: is UTF-16LE; .*-f UTF-16LE"),
    "Cyrillic.txt": ("съешь ещё булок".encode("utf-16-be"), r"Cyrillic\.txt: is UTF-16BE"),
    "Arabic.jsonl": (
        '{"text": "نص حكيم له سر"}'.encode("utf-16-le"),
        r"Arabic\.jsonl: is UTF-16LE",
    ),
    "Hindi.md": ("नमस्ते दुनिया".encode("utf-16-be"), r"Hindi\.md: is UTF-16"),
    "utf32.txt": ("hello".encode("utf-32"), r"utf32\.txt: is UTF-32; .* -f UTF-32"),
    "array.jsonl": (b'[{"text": "a"}, {"text": "b"}]', r"not list; the file is an array: .*jq -c"),
    "printed.jsonl": (b'[\n  {"text": "a"}\n]', r"line 1: not JSON .*; the file is an array"),
    "begun.jsonl": (b'\xef\xbb\xbf[ {"text": "a"},\n{"text": "b"}]', "the file is an array"),
    "object.jsonl": (b'{\n  "text": "a"\n}\n', "line 1: not JSON .*; an object takes several"),
    "table.csv": (b"text\na\n", r"cannot read this .*; convert \.csv, .* `kind: hub`"),
    "items.json": (b"[]", r"cannot read this .*; convert \.csv, \.tsv and \.json to \.jsonl"),
    "picture.png": (b"", r"picture\.png: cannot read this kind of file; .*\.txt"),
    "a.parquet.gz": (b"", "cannot read this kind"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_one_line_error_with_the_file_name(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_records(tmp_path / name, Fields("text")))
    assert "\n" not in str(caught.value)


def test_a_missing_parquet_column_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: no column 'text'; it has body: set text_f"):
        list(read_records(tmp_path / "a.parquet", Fields("text")))


NULLS: dict[str, Callable[[Path], None]] = {
    "a.jsonl": lambda path: (
        path.write_text(
            '{"text": "a", "license": null}\n{"text": null, "license": "L"}\n{"text": "b"}\n'
        )
        and None
    ),
    "a.parquet": lambda path: pq.write_table(
        pa.table({"text": ["a", None, "b"], "license": [None, "L", None]}), path
    ),
}


@pytest.mark.parametrize("name", NULLS)
def test_null_fields_are_read_as_missing(tmp_path: Path, name: str) -> None:
    NULLS[name](tmp_path / name)
    records = [(record.text, record.license) for record in read_records(tmp_path / name, FIELDS)]
    assert records == [("a", None), ("", "L"), ("b", None)]


def test_a_column_of_bytes_is_text_if_it_is_utf8(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["ä".encode(), None], pa.binary())}), path)
    assert texts(path) == ["ä", ""]
    pq.write_table(pa.table({"text": pa.array([b"a\xff"], pa.binary())}), path)
    with pytest.raises(DataError, match=r"row 0: field 'text' has bytes that are not UTF-8"):
        texts(path)


def _bomb(path: Path, before: bytes, size: int, after: bytes = b"") -> None:
    """A file of ``size`` letters behind its suffix's compression, never held as a whole."""
    opened = {".gz": gzip.open, ".zst": zstandard.open}.get(path.suffix, open)
    with opened(path, "wb") as file:
        file.write(before)
        for _ in range(size >> 20):
            file.write(b"x" * (1 << 20))
        file.write(after)


@pytest.mark.parametrize("compressed", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("kind", "before", "where"),
    [
        (".txt", b"", ""),
        (".md", b"", ""),
        (".jsonl", b'{"text": "a"}\n{"text": "', ", line 2"),  # whose line never ends
    ],
)
def test_a_document_above_the_size_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, before: bytes, where: str,
    compressed: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 1 << 21)
    path = tmp_path / f"a{kind}{compressed}"
    _bomb(path, before, 1 << 26)
    with pytest.raises(DataError, match=rf"{path.name}{where}: is larger than 2,097,152") as caught:
        list(read_records(path, Fields("text")))
    assert "\n" not in str(caught.value)
    _bomb(path, before, 1 << 20, b'"}\n' if where else b"")
    assert len(list(read_records(path, Fields("text")))) == 1 + bool(where)


@pytest.mark.parametrize("ending", [".txt.gz", ".txt.zst"])
def test_a_decompression_bomb_takes_little_memory(tmp_path: Path, ending: str) -> None:
    """Half a gigabyte in a megabyte at most is refused before it is held."""
    path = tmp_path / f"bomb{ending}"
    _bomb(path, b"", 1 << 29)
    assert path.stat().st_size < 1 << 20
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from difftransformer.data.readers import Fields, read_records\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "list(read_records(Path(sys.argv[1]), Fields('text')))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert f"DataError: {path}: is larger than 268,435,456 bytes" in ended.stderr


def test_a_large_text_in_parquet_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MAX_DOCUMENT_BYTES", 1000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["a", "x" * 1001]}), path)
    with pytest.raises(DataError, match=r"a.parquet, row 1: is larger than 1,000 bytes"):
        list(read_records(path, Fields("text")))
