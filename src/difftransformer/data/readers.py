"""Reading records out of text files: .txt, .md, .jsonl (plain, .gz, .zst) and .parquet, piecewise.

Every way a file can be bad ends in one DataError that names the file and, where there are lines,
the line.
"""

import gzip
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from difftransformer.errors import DataError

_PIECE = 1 << 20
_PLAIN = (".txt", ".md")
_LINES = (".jsonl", ".ndjson")
SUFFIXES = ".txt, .md, .jsonl, .ndjson (each plain, .gz or .zst) and .parquet"


class Fields(NamedTuple):
    """Names of the fields to take out of a record."""

    text: str
    licence: str | None = None


class Record(NamedTuple):
    """A text of a file; `number` counts records (lines, rows) before it in that file."""

    number: int
    text: str
    licence: str | None


def read_records(path: Path, fields: Fields, start: int = 0) -> Iterator[Record]:
    """Yield the records of a file from number `start` on, with flat memory.

    A .txt or .md is one record and has no fields. Passing over records costs no parsing; of a
    .parquet it is groups of rows that are passed over.

    Raises:
        DataError: The file cannot be read, is truncated, or a record lacks a field.
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


def _kind(path: Path) -> str:
    name = path.with_suffix("") if path.suffix in {".gz", ".zst"} else path
    kind = name.suffix.lower()
    if kind in _PLAIN or kind in _LINES or (kind == ".parquet" and name is path):
        return kind
    raise DataError(f"{path}: cannot read this kind of file; known are {SUFFIXES}")


def _whole_file(path: Path, start: int) -> Iterator[Record]:
    if start == 0:
        content = b"".join(_pieces(path))
        try:
            # A byte order mark is no text; taken away behind, so that errors count from the start.
            yield Record(0, content.decode("utf-8").removeprefix("\ufeff"), None)
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _json_records(path: Path, fields: Fields, start: int) -> Iterator[Record]:
    for number, line in enumerate(_lines(path)):
        if number < start or not line.strip():
            continue
        where = f"{path}, line {number + 1}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON ({error}); mend or remove the line") from None
        if not isinstance(record, dict):
            raise DataError(f"{where}: a JSON object is needed, not {type(record).__name__}")
        yield _record(number, record, fields, where)


def _record(number: int, values: dict[str, Any], fields: Fields, where: str) -> Record:
    def found(field: str) -> str:
        if field not in values:
            raise DataError(f"{where}: no field {_lacking(field, values)}, or mend the line")
        value = values[field]
        if not isinstance(value, str):
            raise DataError(f"{where}: field {field!r} is {type(value).__name__}, not text")
        require_unicode(value, f"{where}: field {field!r}")
        return value

    licence = found(fields.licence) if fields.licence in values else None
    return Record(number, found(fields.text), licence)


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
            rows = chain.from_iterable(batch.to_pylist() for batch in batches)
            for number, values in enumerate(rows, starts[group]):
                if number >= start:
                    yield _record(number, values, fields, f"{path}, row {number}")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None


def _lines(path: Path) -> Iterator[bytes]:
    """Lines of a file without their ends; only the line in work is held."""
    rest: list[bytes] = []
    for piece in _pieces(path):
        first, *others = piece.split(b"\n")
        rest.append(first)
        for other in others:
            yield b"".join(rest)
            rest = [other]
    if any(rest):
        yield b"".join(rest)


def _pieces(path: Path) -> Iterator[bytes]:
    """Uncompressed bytes of a file, at most a few megabytes at a time."""
    try:
        if path.suffix == ".zst":
            yield from _zst_pieces(path)
        else:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                yield from iter(partial(stream.read, _PIECE), b"")
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _zst_pieces(path: Path) -> Iterator[bytes]:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    frame = None
    try:
        with path.open("rb") as stream:
            while piece := stream.read(_PIECE // 8):
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
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return DataError(f"{path}: cannot be read, it may be truncated or damaged ({why})")
