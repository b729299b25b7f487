"""Where documents come from: each source yields them in one fixed order, from any cursor on."""

import glob
import hashlib
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from difftransformer.config.data import BuiltinSource, DatasetConfig, FilesSource, HubSource
from difftransformer.data.readers import Fields, read_records, require_unicode
from difftransformer.errors import DataError


class Cursor(NamedTuple):
    """A place in a source: how often it was read through, file in it, record in the file."""

    repeat: int = 0
    unit: int = 0
    record: int = 0


class Document(NamedTuple):
    """A text, its licence and the cursor just behind it."""

    text: str
    licence: str
    cursor: Cursor


class Source(Protocol):
    """What every kind of source offers."""

    kind: str
    weight: float
    origin: str

    @property
    def has_validation(self) -> bool:
        """Whether it names held-out text itself, so that nothing is held out by hash."""

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Documents from a cursor on; `split` matters only with has_validation."""

    def identity(self) -> list[Any]:
        """Return what decides its documents, in JSON types; other work is not continued."""


class StdlibText:
    """The .py files of the running Python's standard library.

    Files come in the order of the SHA-256 of their path, so that a cap or a budget takes a sample
    of the library and not its first letters. The text depends on the Python version alone: files
    written at build time or by a distribution (``_sysconfigdata*``, links) are left out.
    """

    kind = "builtin"
    has_validation = False
    _EXCLUDED = frozenset({"site-packages", "dist-packages", "__pycache__"})
    _TESTS = frozenset({"test", "tests", "idle_test"})

    def __init__(self, config: BuiltinSource) -> None:
        self.weight = config.weight
        self.origin = f"standard library of Python {platform.python_version()}"
        self._root = Path(sysconfig.get_path("stdlib"))
        excluded = self._EXCLUDED if config.include_tests else self._EXCLUDED | self._TESTS
        found = sorted(
            (hashlib.sha256(name.encode()).hexdigest(), name) for name in self._names(excluded)
        )
        self._files = _capped([self._root / name for _, name in found], config.max_bytes)
        if not self._files:
            raise DataError(f"{self._root}: no .py files of the standard library here")

    def _names(self, excluded: frozenset[str]) -> Iterator[str]:
        for path in self._root.rglob("*.py"):
            relative = path.relative_to(self._root)
            folders = relative.parts[:-1]
            if excluded.isdisjoint(folders) and not any(
                (
                    path.is_symlink(),
                    path.name.startswith("_sysconfigdata"),
                    folders and folders[0].startswith("config-"),
                )
            ):
                yield relative.as_posix()

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield a document per file; files that are not UTF-8 are not text and are left out."""
        for unit in range(start.unit, len(self._files)):
            try:
                text = self._files[unit].read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            yield Document(text, "PSF-2.0", Cursor(start.repeat, unit + 1))

    def identity(self) -> list[Any]:
        """Return version, names and sizes."""
        return [self.origin, [[path.name, path.stat().st_size] for path in self._files]]


class Files:
    """Text files named by globs, in sorted order."""

    kind = "files"

    def __init__(self, name: str, config: FilesSource) -> None:
        self.weight = config.weight
        self._licence = config.licence
        self._fields = Fields(config.text_field, config.licence_field)
        self._files = {"train": _matches(name, config.globs)}
        if config.validation:
            self._files["validation"] = _matches(name, config.validation)
            both = set(self._files["train"]) & set(self._files["validation"])
            if both:
                raise DataError(
                    f"source {name}: {min(both)} is matched by both globs and validation: "
                    "narrow the globs, or the model is validated on its training text"
                )
        self.origin = f"{len(self._files['train'])} files of {', '.join(config.globs)}"

    @property
    def files(self) -> list[Path]:
        """Every file, held-out ones included."""
        return [path for files in self._files.values() for path in files]

    @property
    def has_validation(self) -> bool:
        """Whether held-out files are named."""
        return "validation" in self._files

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield the records of the split's files, or of all files without a validation glob."""
        files = self._files[split if self.has_validation else "train"]
        for unit in range(start.unit, len(files)):
            first = start.record if unit == start.unit else 0
            for record in read_records(files[unit], self._fields, first):
                cursor = Cursor(start.repeat, unit, record.number + 1)
                yield Document(record.text, record.licence or self._licence, cursor)

    def identity(self) -> list[Any]:
        """Return paths, sizes and times of change."""
        return [
            [str(path), path.stat().st_size, path.stat().st_mtime_ns]
            for files in self._files.values()
            for path in files
        ]


class Hub:
    """A dataset of the Hugging Face hub (or a local folder in its layout), streamed."""

    kind = "hub"

    def __init__(self, name: str, config: HubSource) -> None:
        self.weight = config.weight
        self.origin = f"{config.dataset} at {config.revision}"
        self._name = name
        self._config = config

    @property
    def has_validation(self) -> bool:
        """Whether a validation split is named."""
        return self._config.validation_split is not None

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield the rows of the split."""
        config = self._config
        held_out = split == "validation" and config.validation_split is not None
        chosen = config.validation_split if held_out else config.split
        try:
            rows = iter(self._load(str(chosen)).skip(start.record))
        except Exception as error:  # the datasets library raises dozens of kinds
            raise self._failure(error) from None
        number = start.record
        while True:
            try:
                row = next(rows, None)
            except Exception as error:  # network errors of any transport
                raise self._failure(error) from None
            if row is None:
                return
            text = row.get(config.text_field)
            if not isinstance(text, str):
                raise DataError(
                    f"source {self._name}: row {number} of {config.dataset} has no text in "
                    f"{config.text_field!r}; its fields are {', '.join(sorted(row))}"
                )
            require_unicode(text, f"source {self._name}: row {number} of {config.dataset}")
            number += 1
            yield Document(text, config.licence, Cursor(start.repeat, 0, number))

    def _load(self, split: str) -> Any:
        import datasets

        config = self._config
        local = Path(config.dataset).is_dir()
        return datasets.load_dataset(
            config.dataset,
            config.config,
            split=split,
            revision=None if local else config.revision,
            streaming=True,
        )

    def _failure(self, error: Exception) -> DataError:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DataError(
            f"source {self._name}: {self._config.dataset} at {self._config.revision} cannot be "
            f"loaded ({type(error).__name__}: {reason}); check name, revision and network"
        )

    def identity(self) -> list[Any]:
        """Return the settings: the pinned revision says it all."""
        return [self._config.model_dump(mode="json")]


def open_sources(dataset: DatasetConfig) -> dict[str, Source]:
    """Open the text sources of a dataset, by name.

    Raises:
        DataError: A source has no files; names the source and the glob.
    """
    opened: dict[str, Source] = {}
    for name, config in dataset.sources.items():
        match config:
            case FilesSource():
                opened[name] = Files(name, config)
            case HubSource():
                opened[name] = Hub(name, config)
            case BuiltinSource():
                assert config.name == "stdlib_text", "rows are generated, not read"
                opened[name] = StdlibText(config)
    return opened


def corpus_files(dataset: DatasetConfig) -> list[Path]:
    """Return the files a dataset is read from, for a workflow that watches them change.

    Raises:
        DataError: A glob matches no file; names the source and the glob.
    """
    return [
        path
        for name, config in dataset.sources.items()
        if isinstance(config, FilesSource)
        for path in Files(name, config).files
    ]


def documents(
    source: Source, split: str, validation_share: float, start: Cursor | None = None
) -> Iterator[Document]:
    """Yield the documents of a split: blank ones left out, held-out ones kept apart by hash."""
    for document in source.read(split, start or Cursor()):
        if not document.text.strip():
            continue
        if source.has_validation or held_out(document.text, validation_share) == (
            split == "validation"
        ):
            yield document


def held_out(text: str, share: float) -> bool:
    """Whether a document belongs to validation: its SHA-256 decides, so copies stay together."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2.0**64


def _matches(name: str, globs: list[str]) -> list[Path]:
    found: set[str] = set()
    for pattern in globs:
        # Path.glob takes no absolute pattern.
        names = glob.glob(pattern, recursive=True)  # noqa: PTH207
        matched = {name for name in names if Path(name).is_file()}
        if not matched:
            raise DataError(
                f"source {name}: no file matches {pattern!r} (relative globs start at {Path.cwd()})"
            )
        found |= matched
    return [Path(path) for path in sorted(found)]


def _capped(files: list[Path], max_bytes: int | None) -> list[Path]:
    """Take the files in turn, passing over those that would exceed max_bytes."""
    if max_bytes is None:
        return files
    taken, total = [], 0
    for path in files:
        size = path.stat().st_size
        if total + size <= max_bytes:
            total += size
            taken.append(path)
    return taken
