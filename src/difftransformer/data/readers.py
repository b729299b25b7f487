"""Reading records out of text files: .txt, .md, .jsonl (plain, .gz, .zst) and .parquet, piecewise.

Every way a file can be bad ends in one DataError that names the file and, where there are lines,
the line.
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

LARGEST_DOCUMENT = 1 << 28
"""Bytes of a file of text, of a line of JSON or of a text in Parquet; larger ones are refused.

A megabyte of .gz or .zst can hold gigabytes, and a document is held in memory as a whole.
"""
_PIECE = 1 << 20
_ZST_PIECE = 1 << 12
"""Compressed bytes at a time: four of them may stand for 128 KiB, so this is 128 MiB at most."""
_PLAIN = (".txt", ".md")
_LINES = (".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv", ".json")
_COMPRESSED = (".gz", ".zst")
SUFFIXES = ".txt, .md, .jsonl, .ndjson (each plain, .gz or .zst) and .parquet"
_OTHER_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # begins with UTF-16's
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


class Fields(NamedTuple):
    """Names of the fields to take out of a record."""

    text: str
    license: str | None = None


class Record(NamedTuple):
    """A text of a file; `number` counts records (lines, rows) before it in that file.

    The text is empty where the file holds null.
    """

    number: int
    text: str
    license: str | None


def read_records(path: Path, fields: Fields, start: int = 0) -> Iterator[Record]:
    """Yield the records of a file from number `start` on, with flat memory.

    A .txt or .md is one record and has no fields. Passing over records costs no parsing; of a
    .parquet it is groups of rows that are passed over.

    Raises:
        DataError: The file cannot be read, is truncated, or a record lacks a field or is larger
            than `LARGEST_DOCUMENT`.
    """
    kind = _kind(path)
    if kind == ".parquet":
        return _parquet_records(path, fields, start)
    if kind in _LINES:
        return _json_records(path, fields, start)
    return _whole_file(path, start)


def is_readable(path: Path) -> bool:
    """Whether a file is of a kind that can be read, by its name."""
    try:
        return bool(_kind(path))
    except DataError:
        return False


def conversion_hint(endings: Iterable[str]) -> str:
    """Return how files of other kinds can be read, as the end of a message; empty if unknown."""
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
        f"{path}: cannot read this kind of file; known are {SUFFIXES}{conversion_hint([kind])}"
    )


def _whole_file(path: Path, start: int) -> Iterator[Record]:
    if start == 0:
        content = b"".join(_limited(_utf8_pieces(path), path))
        try:
            # A byte order mark is no text; taken away behind, so that errors count from the start.
            yield Record(0, content.decode("utf-8").removeprefix("\ufeff"), None)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _json_records(path: Path, fields: Fields, start: int) -> Iterator[Record]:
    for number, line in enumerate(lines(path)):
        if number < start or not line.strip():
            continue
        where = f"{path}, line {number + 1}"
        record = parse_line(line, where)
        if not isinstance(record, dict):
            found = type(record).__name__
            raise DataError(f"{where}: a JSON object is needed, not {found}{_jq_hint(line)}")
        yield _record(number, record, fields, where)


def parse_line(line: bytes, where: str) -> Any:
    """Return what a line of JSON holds; a byte order mark before it is passed over.

    Raises:
        DataError: It is no JSON; names ``where``.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        cure = _jq_hint(line) or "; mend or remove the line"
        raise DataError(f"{where}: not JSON ({error}){cure}") from None


def _jq_hint(line: bytes) -> str:
    """Return how JSON over several lines becomes a line each object; empty if it is not that."""
    begin = line.removeprefix(codecs.BOM_UTF8).strip()
    if begin == b"[" or begin.replace(b" ", b"").startswith(b"[{"):
        return "; the file is an array: write one object a line (`jq -c '.[]' FILE > NEW.jsonl`)"
    if begin == b"{":
        return "; an object takes several lines: write it on one (`jq -c . FILE > NEW.jsonl`)"
    return ""


def _record(number: int, values: dict[str, Any], fields: Fields, where: str) -> Record:
    def found(field: str) -> str | None:
        if field not in values:
            raise DataError(f"{where}: no field {_lacking(field, values)}, or mend the line")
        value = values[field]
        if isinstance(value, bytes):  # a column of Parquet that does not say it is text
            try:
                value = value.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{where}: field {field!r} holds bytes that are not UTF-8 (at {error.start}): "
                    "set text_field of the source to what has text"
                ) from None
        if not isinstance(value, str | None):
            raise DataError(f"{where}: field {field!r} is {type(value).__name__}, not text")
        require_unicode(value or "", f"{where}: field {field!r}")
        return value

    license = found(fields.license) if fields.license in values else None
    return Record(number, found(fields.text) or "", license)


def _lacking(text_field: str, found: Iterable[str]) -> str:
    names = ", ".join(sorted(found)) or "none"
    return f"{text_field!r}; it has {names}: set text_field of the source to what has text"


def require_unicode(text: str, where: str) -> None:
    """Refuse half a surrogate pair, which JSON can spell and UTF-8 and tokenizers cannot.

    Raises:
        DataError: There is one; names ``where``.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where} has half a surrogate pair, {text[error.start]!r}, at character "
            f"{error.start}; mend or remove the record"
        ) from None


def _parquet_records(path: Path, fields: Fields, start: int) -> Iterator[Record]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if fields.text not in names:
                raise DataError(f"{path}: no column {_lacking(fields.text, names)}")
            columns = [field for field in fields if field in names]
            count = file.num_row_groups
            sizes = (file.metadata.row_group(group).num_rows for group in range(count))
            starts = [0, *accumulate(sizes)]
            group = bisect_right(starts, start) - 1
            rest = list(range(group, count))
            batches = file.iter_batches(batch_size=256, row_groups=rest, columns=columns)
            rows = (row for batch in batches for row in _rows(batch))
            for number, values in enumerate(rows, starts[group]):
                if number >= start:
                    where = f"{path}, row {number}"
                    for value in values.values():
                        if isinstance(value, str | bytes) and len(value) > LARGEST_DOCUMENT:
                            raise _too_large(where)
                    yield _record(number, values, fields, where)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a pyarrow batch, converted to Python values one at a time."""
    for row in range(batch.num_rows):
        yield {name: batch.column(name)[row].as_py() for name in batch.schema.names}


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, uncompressed, without line ends; memory holds one line at a time.

    Raises:
        DataError: The file cannot be read, is in UTF-16, or a line is larger than
            `LARGEST_DOCUMENT`.
    """
    line: list[bytes] = []
    number, size = 1, 0
    for block in _utf8_pieces(path):
        first, *more = block.split(b"\n")
        line.append(first)
        size += len(first)
        for other in more:
            yield b"".join(line)
            line, number, size = [other], number + 1, len(other)
        if size > LARGEST_DOCUMENT:
            raise _too_large(f"{path}, line {number}")
    if any(line):
        yield b"".join(line)


def _limited(blocks: Iterable[bytes], path: Path) -> Iterator[bytes]:
    size = 0
    for block in blocks:
        if (size := size + len(block)) > LARGEST_DOCUMENT:
            raise _too_large(str(path))
        yield block


def _too_large(where: str) -> DataError:
    limit = f"{LARGEST_DOCUMENT:,} bytes"
    return DataError(
        f"{where}: is larger than {limit} uncompressed, the limit for one document: split it, for "
        "example into lines of a .jsonl"
    )


def _utf8_pieces(path: Path) -> Iterator[bytes]:
    """Uncompressed bytes of a file, at most a few megabytes at a time; UTF-16 is refused."""
    begun = False
    for piece in _pieces(path):
        if piece and not begun:
            begun = True
            if encoding := _other_encoding(piece[:1024]):
                raise DataError(
                    f"{path}: is {encoding}; save it as UTF-8 (`iconv -f {encoding} -t UTF-8`)"
                )
        yield piece


def _other_encoding(begin: bytes) -> str | None:
    """Return UTF-16 or UTF-32 by the mark, or UTF-16BE or LE by what every other byte is.

    In UTF-16 that is the number of the script: 0 between Latin letters, 4 between Cyrillic ones,
    which as UTF-8 would be text, too.
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
        return DataError(f"{path}: cannot be read (permission denied); allow it, or name others")
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"{path}: cannot be read, it may be truncated or damaged ({why})")
