"""Streaming readers of text files: .txt, .md, .jsonl (plain, .gz, .zst) and .parquet.

Every fault of a file becomes a DataError that names the file and, if it has lines, the line.
"""

import codecs
import gzip
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from difftransformer.errors import DataError

MAX_DOCUMENT_BYTES = 1 << 28
"""Limit for a text file, a line of JSON or a text in Parquet, since a document is in memory.

A megabyte of .gz or .zst can expand to gigabytes.
"""
_PIECE = 1 << 20
_ZST_PIECE = 1 << 12
"""Compressed bytes per read; four bytes can expand to 128 KiB, so a piece has at most 128 MiB."""
_PLAIN = (".txt", ".md")
_LINES = (".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv", ".json")
_COMPRESSED = (".gz", ".zst")
SUFFIXES = ".txt, .md, .jsonl, .ndjson (each plain, .gz or .zst) and .parquet"
_OTHER_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class Fields(NamedTuple):
    """Names of the fields to read from each record."""

    text: str
    license: str | None = None


class Record(NamedTuple):
    """The text of a record and its number (line or row) in the file.

    The text is empty where the file has null.
    """

    number: int
    text: str
    license: str | None


def read_records(path: Path, fields: Fields, start: int = 0) -> Iterator[Record]:
    """Yield the records of a text file from number ``start`` on, in constant memory.

    A .txt or .md is one record without fields. Skipped records are not parsed; in a .parquet whole
    row groups are skipped.

    Raises:
        DataError: The file cannot be read, is truncated, or a record lacks a field or is larger
            than `MAX_DOCUMENT_BYTES`.
    """
    kind = _kind(path)
    if kind == ".parquet":
        return _parquet_records(path, fields, start)
    if kind in _LINES:
        return _json_records(path, fields, start)
    return _whole_file(path, start)


def is_readable(path: Path) -> bool:
    """Return whether the ending of a file's name is one of the supported ones."""
    try:
        return bool(_kind(path))
    except DataError:
        return False


def conversion_hint(endings: Iterable[str]) -> str:
    """Return advice on converting files with these endings, as the end of an error message.

    The text is empty if there is no advice.
    """
    if not any(ending.lower() in _TABLES for ending in endings):
        return ""
    return (
        "; convert .csv, .tsv and .json to .jsonl, or read their folder by a source of `kind: hub` "
        "(`dataset`: the folder)"
    )


def _kind(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    kind = name.suffix.lower()
    if kind in _PLAIN or kind in _LINES or (kind == ".parquet" and name is path):
        return kind
    raise DataError(
        f"{path}: cannot read this kind of file; supported are {SUFFIXES}{conversion_hint([kind])}"
    )


def _whole_file(path: Path, start: int) -> Iterator[Record]:
    if start == 0:
        content = b"".join(_limited(_utf8_pieces(path), path))
        try:
            # A byte order mark is removed after decoding, so that errors count from the start.
            yield Record(0, content.decode("utf-8").removeprefix("\ufeff"), None)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _json_records(path: Path, fields: Fields, start: int) -> Iterator[Record]:
    for number, line in enumerate(lines(path)):
        if number < start or not line.strip():
            continue
        location = f"{path}, line {number + 1}"
        record = parse_line(line, location)
        if not isinstance(record, dict):
            name = type(record).__name__
            raise DataError(f"{location}: a JSON object is needed, not {name}{_jq_hint(line)}")
        yield _record(number, record, fields, location)


def parse_line(line: bytes, location: str) -> Any:
    """Return the value of a line of JSON; a byte order mark before it is ignored.

    Raises:
        DataError: The line is not JSON; the message names ``location``.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        cure = _jq_hint(line) or "; correct or remove the line"
        raise DataError(f"{location}: not JSON ({error}){cure}") from None


def _jq_hint(line: bytes) -> str:
    """Return how to convert JSON over several lines to JSON lines; empty if it is not that."""
    begin = line.removeprefix(codecs.BOM_UTF8).strip()
    if begin == b"[" or begin.replace(b" ", b"").startswith(b"[{"):
        return "; the file is an array: write one object per line (`jq -c '.[]' FILE > NEW.jsonl`)"
    if begin == b"{":
        return "; an object takes several lines: write it on one (`jq -c . FILE > NEW.jsonl`)"
    return ""


def _record(number: int, values: dict[str, Any], fields: Fields, location: str) -> Record:
    def read_field(field: str) -> str | None:
        if field not in values:
            raise DataError(
                f"{location}: no field {_missing_field(field, values)}, or correct the line"
            )
        value = values[field]
        if isinstance(value, bytes):  # a binary column of Parquet
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{location}: field {field!r} has bytes that are not UTF-8 (at {error.start}): "
                    "set text_field of the source to a field with text"
                ) from None
        if not isinstance(value, str | None):
            raise DataError(f"{location}: field {field!r} is {type(value).__name__}, not text")
        require_unicode(value or "", f"{location}: field {field!r}")
        return value

    license = read_field(fields.license) if fields.license in values else None
    return Record(number, read_field(fields.text) or "", license)


def _missing_field(text_field: str, fields: Iterable[str]) -> str:
    names = ", ".join(sorted(fields)) or "none"
    return f"{text_field!r}; it has {names}: set text_field of the source to a field with text"


def require_unicode(text: str, location: str) -> None:
    """Check that a text has no lone surrogate, which JSON can encode but UTF-8 cannot.

    Raises:
        DataError: The text has one; the message names ``location``.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{location} has half a surrogate pair, {text[error.start]!r}, at character "
            f"{error.start}; correct or remove the record"
        ) from None


def _parquet_records(path: Path, fields: Fields, start: int) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if fields.text not in names:
                raise DataError(f"{path}: no column {_missing_field(fields.text, names)}")
            columns = [field for field in fields if field in names]
            count = file.num_row_groups
            sizes = (file.metadata.row_group(group).num_rows for group in range(count))
            starts = [0, *accumulate(sizes)]
            group = bisect_right(starts, start) - 1
            row_groups = list(range(group, count))
            batches = file.iter_batches(batch_size=256, row_groups=row_groups, columns=columns)
            rows = (row for batch in batches for row in _rows(batch))
            for number, values in enumerate(rows, starts[group]):
                if number >= start:
                    location = f"{path}, row {number}"
                    for value in values.values():
                        if isinstance(value, str | bytes) and len(value) > MAX_DOCUMENT_BYTES:
                            raise _too_large(location)
                    yield _record(number, values, fields, location)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a pyarrow batch as Python values."""
    for row in range(batch.num_rows):
        yield {name: batch.column(name)[row].as_py() for name in batch.schema.names}


def lines(path: Path) -> Iterator[bytes]:
    """Yield the uncompressed lines of a file without line ends, one in memory at a time.

    Raises:
        DataError: The file cannot be read, is in UTF-16, or a line is larger than
            `MAX_DOCUMENT_BYTES`.
    """
    line: list[bytes] = []
    number, size = 1, 0
    for block in _utf8_pieces(path):
        first, *more = block.split(b"\n")
        line.append(first)
        size += len(first)
        for start in more:
            yield b"".join(line)
            line, number, size = [start], number + 1, len(start)
        if size > MAX_DOCUMENT_BYTES:
            raise _too_large(f"{path}, line {number}")
    if any(line):
        yield b"".join(line)


def _limited(blocks: Iterable[bytes], path: Path) -> Iterator[bytes]:
    size = 0
    for block in blocks:
        if (size := size + len(block)) > MAX_DOCUMENT_BYTES:
            raise _too_large(str(path))
        yield block


def _too_large(location: str) -> DataError:
    limit = f"{MAX_DOCUMENT_BYTES:,} bytes"
    return DataError(
        f"{location}: is larger than {limit} uncompressed, the limit for one document: split it, "
        "for example into lines of a .jsonl"
    )


def _utf8_pieces(path: Path) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a file in pieces; raise for UTF-16 and UTF-32."""
    checked = False
    for piece in _pieces(path):
        if piece and not checked:
            checked = True
            if encoding := _other_encoding(piece[:1024]):
                raise DataError(
                    f"{path}: is {encoding}; save it as UTF-8 (`iconv -f {encoding} -t UTF-8`)"
                )
        yield piece


def _other_encoding(begin: bytes) -> str | None:
    """Return UTF-16 or UTF-32 by the byte order mark, or UTF-16BE or LE by every other byte.

    In UTF-16 that byte is the number of the script: 0 for Latin letters, 4 for Cyrillic ones.
    """
    for mark, encoding in _OTHER_ENCODINGS.items():
        if begin.startswith(mark):
            return encoding
    for encoding, half in (("UTF-16BE", begin[::2]), ("UTF-16LE", begin[1::2])):
        controls = sum(byte < ord(" ") for byte in half)
        if 3 * controls > 2 * len(half) and min(half) < ord("\t"):
            return encoding
    return None


def _pieces(path: Path) -> Iterator[bytes]:
    suffix = path.suffix.lower()
    try:
        if suffix == ".zst":
            yield from _zst_pieces(path)
        else:
            with gzip.open(path) if suffix == ".gz" else path.open("rb") as stream:
                yield from iter(partial(stream.read, _PIECE), b"")
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _zst_pieces(path: Path) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_ZST_PIECE):
                while piece:
                    frame = frame or decompressor.decompressobj()
                    yield frame.decompress(piece)
                    piece = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise _unreadable(path, error) from None
    if frame is not None:
        raise _unreadable(path, EOFError("the file ends within a compressed frame"))


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(
            f"{path}: cannot be read (permission denied); grant it, or name other files"
        )
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"{path}: cannot be read, it may be truncated or damaged ({reason})")
