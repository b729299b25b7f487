"""Text sources: each yields its documents in a fixed order, from any cursor on."""

import glob
import hashlib
import platform
import sysconfig
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path
from string import Formatter
from typing import Any

from difftransformer.config.data import (
    BuiltinSource,
    DatasetConfig,
    FilesSource,
    HubSource,
    SplitSettings,
)
from difftransformer.config.folders import is_inside, read_folder, require_inside
from difftransformer.config.tokenizers import HuggingFaceTokenizer
from difftransformer.data.arithmetic import document_at
from difftransformer.data.documents import Cursor, Document, Source
from difftransformer.data.readers import (
    SUFFIXES,
    Fields,
    conversion_hint,
    is_readable,
    read_records,
    require_unicode,
)
from difftransformer.errors import DataError, in_one_line

_MISSING = object()


class StdlibText:
    """A source with the .py files of Python's standard library, ordered by their path's SHA-256.

    A budget of tokens therefore takes a random sample. The text depends only on the Python version:
    files written at build time or by a distribution (``_sysconfigdata*``, links) are excluded.
    """

    kind = "builtin"
    has_validation = sorted_by_name = False
    _EXCLUDED = frozenset({"site-packages", "dist-packages", "__pycache__"})
    _TESTS = frozenset({"test", "tests", "idle_test"})

    def __init__(self, config: BuiltinSource) -> None:
        self.weight = config.weight
        self.origin = f"standard library of Python {platform.python_version()}"
        self._root, self._config = Path(sysconfig.get_path("stdlib")), config
        excluded = self._EXCLUDED if config.include_tests else self._EXCLUDED | self._TESTS
        paths = sorted((hashlib.sha256(n.encode()).digest(), n) for n in self._names(excluded))
        self._files = _capped([self._root / name for _, name in paths], config.max_bytes)
        if not self._files:
            raise DataError(f"{self._root}: no .py files of the standard library found")

    def _names(self, excluded: frozenset[str]) -> Iterator[str]:
        for path in self._root.rglob("*.py"):
            relative = path.relative_to(self._root)
            *folders, name = relative.parts
            built = name.startswith("_sysconfigdata") or "".join(folders).startswith("config-")
            if not (built or path.is_symlink()) and excluded.isdisjoint(folders):
                yield relative.as_posix()

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield one document per file from the cursor ``start`` on; skip files not in UTF-8."""
        for file in range(start.file, len(self._files)):
            path = self._files[file]
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            package = _package(self._config, path.relative_to(self._root).parts[0])
            yield Document(text, "PSF-2.0", Cursor(start.repeat, file + 1), package)

    def identity(self) -> list[Any]:
        """Return the Python version, and the names and sizes of the files."""
        return [self.origin, [[path.name, path.stat().st_size] for path in self._files]]


class Arithmetic:
    """A source of endless generated questions with worked answers, see `data.arithmetic`.

    Each document has its own random stream, so reading resumes at any cursor.
    """

    kind = "builtin"
    has_validation = sorted_by_name = False

    def __init__(self, config: BuiltinSource) -> None:
        self.weight = config.weight
        self.origin = f"generated arithmetic, {config.style}, seed {config.generator_seed}"
        self._config = config

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield the generated documents from the cursor ``start`` on."""
        for index in count(start.record):
            text = document_at(self._config.generator_seed, index, self._config.style)
            yield Document(text, "MIT", Cursor(start.repeat, 0, index + 1))

    def identity(self) -> list[Any]:
        """Return the seed and the style of the generated documents."""
        return [self.origin]


class Files:
    """A source of text files selected by globs, in sorted order."""

    kind, sorted_by_name = "files", True

    def __init__(self, name: str, config: FilesSource) -> None:
        self.weight, self._config = config.weight, config
        self._fields = Fields(config.text_field, config.license_field)
        self._files = {"train": _resolve_globs(name, config.globs)}
        if config.validation:
            self._files["validation"] = _resolve_globs(name, config.validation)
            validation = {path.resolve() for path in self._files["validation"]}
            if shared := [path for path in self._files["train"] if path.resolve() in validation]:
                raise DataError(
                    f"source {name}: {shared[0]} is matched by both globs and validation: "
                    "narrow the globs, or the model is validated on its training text"
                )
        number = len(self._files["train"])
        self.origin = f"{number} file{'s' * (number > 1)} of {', '.join(config.globs)}"

    @property
    def files(self) -> list[Path]:
        """Paths of all files, including validation files."""
        return [path for files in self._files.values() for path in files]

    @property
    def training_files(self) -> list[Path]:
        """Paths of the files of ``globs``, in order; of both splits without validation globs."""
        return self._files["train"]

    @property
    def has_validation(self) -> bool:
        """Whether the settings have validation globs."""
        return "validation" in self._files

    @property
    def skipped_files(self) -> tuple[list[Path], list[Path]]:
        """Files with unsupported endings, and hidden files and folders, in the source's folders."""
        patterns = [*self._config.globs, *self._config.validation]
        folders = [read_folder(Path(name)) for pattern in patterns for name in _glob(pattern)]
        files = {path for folder in folders for path in folder.files if not is_readable(path)}
        return sorted(files), sorted({path for folder in folders for path in folder.hidden})

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield the records of the split's files; without validation globs, those of all files."""
        files = self._files[split if self.has_validation else "train"]
        for file in range(start.file, len(files)):
            first = start.record if file == start.file else 0
            package = _package(self._config, _folder(files[file], self._config.globs))
            for record in read_records(files[file], self._fields, first):
                cursor = Cursor(start.repeat, file, record.number + 1)
                yield Document(record.text, record.license or self._config.license, cursor, package)

    def identity(self) -> list[Any]:
        """Return the paths, sizes and modification times of the files."""
        return _file_states(self.files)


class Hub:
    """A source that streams a dataset of the Hugging Face hub, or a local folder in its layout."""

    kind = "hub"

    def __init__(self, name: str, config: HubSource) -> None:
        self.weight = config.weight
        self.origin = f"{config.dataset} at {config.revision}"
        self.sorted_by_name = Path(config.dataset).is_dir()
        self._name, self._config = name, config

    @property
    def has_validation(self) -> bool:
        """Whether the settings name a validation split."""
        return self._config.validation_split is not None

    def read(self, split: str, start: Cursor) -> Iterator[Document]:
        """Yield the rows of the split as documents, from the cursor ``start`` on."""
        config = self._config
        held_out = split == "validation" and config.validation_split is not None
        chosen = config.validation_split if held_out else config.split
        for number, row in enumerate(self._rows(str(chosen), start.record), start.record):
            text, location = (
                self._text(row),
                f"source {self._name}: row {number} of {config.dataset}",
            )
            if not isinstance(text, str):
                setting = "text_field" if config.template is None else "template"
                raise DataError(
                    f"{location} has no text in {config.template or config.text_field!r}; its "
                    f"fields are {', '.join(sorted(row))}: set {setting} of the source to one with "
                    "text"
                )
            require_unicode(text, location)
            yield Document(text, config.license, Cursor(start.repeat, 0, number + 1))

    def _text(self, row: dict[str, Any]) -> Any:
        """Return the text of a row, "" for null, _MISSING without such a column."""
        template = self._config.template
        if template is None:
            text = row.get(self._config.text_field, _MISSING)
            return "" if text is None else text
        try:
            text = template.format_map(row)
            fields = [field for _, field, _, _ in Formatter().parse(template) if field]
            values = [Formatter().get_field(field, (), row)[0] for field in fields]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            return _MISSING
        return "" if None in values else text

    def _rows(self, split: str, start: int) -> Iterator[dict[str, Any]]:
        import datasets

        config = self._config
        revision = None if Path(config.dataset).is_dir() else config.revision
        try:
            rows = datasets.load_dataset(
                config.dataset, config.config, split=split, revision=revision, streaming=True
            )
            yield from rows.skip(start)
        except Exception as error:  # the datasets library raises dozens of kinds
            raise DataError(
                f"source {self._name}: {self.origin} cannot be loaded ({in_one_line(error)}); "
                "check name, revision and network"
            ) from None

    def identity(self) -> list[Any]:
        """Return the settings with the pinned revision, and the files if it is a local folder."""
        return [self._config.model_dump(mode="json"), *_file_states(self._config.files)]


def open_sources(dataset: DatasetConfig) -> dict[str, Source]:
    """Return the text sources of a dataset by name, opened.

    Raises:
        DataError: A source has no files; the message names the source and the glob.
    """
    opened: dict[str, Source] = {}
    for name, config in dataset.sources.items():
        match config:
            case FilesSource():
                opened[name] = Files(name, config)
            case HubSource():
                opened[name] = Hub(name, config)
            case BuiltinSource(name="arithmetic"):
                opened[name] = Arithmetic(config)
            case BuiltinSource():
                assert config.name == "stdlib_text", "rows are generated, not read"
                opened[name] = StdlibText(config)
    return opened


def corpus_files(dataset: DatasetConfig) -> list[Path]:
    """Return the paths of a dataset's files; raise DataError if a glob matches no file."""
    files: list[Path] = []
    for name, config in dataset.sources.items():
        match config:
            case FilesSource():
                files += Files(name, config).files
            case HubSource():
                files += config.files
    if isinstance(dataset.tokenizer, HuggingFaceTokenizer):
        files += dataset.tokenizer.files
    return files


def _file_states(files: list[Path]) -> list[list[Any]]:
    """Return paths, sizes and times of change."""
    stats = [(path, path.stat()) for path in files]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def _resolve_globs(name: str, globs: list[str]) -> list[Path]:
    by_target: dict[Path, str] = {}
    literal = {Path(pattern).absolute() for pattern in globs}
    for pattern in globs:
        matches, root = [Path(path) for path in _glob(pattern)], _fixed(pattern)
        files = {path for path in matches if path.is_file()}
        outside = [path for path in matches if path.exists() and not is_inside(path, root)]
        folders = [path for path in matches if path.is_dir() and path not in outside]
        for contents in (read_folder(folder, root) for folder in folders):
            files |= {path for path in contents.files if is_readable(path)}
            outside += [path for path in contents.outside if path.is_dir() or is_readable(path)]
        for path in outside:
            if path.absolute() not in literal:
                cure = f"copy it there, or name the link itself in the globs of source {name}"
                require_inside(path, root, cure)
        matched = files.difference(outside)
        if not matched:
            unread = {path for folder in matches for path in read_folder(folder, root).files}
            endings = sorted({path.suffix or "none" for path in unread})
            hint = f"; there are {len(unread)} of {', '.join(endings)}" if unread else ""
            raise DataError(
                f"source {name}: no file matches {pattern!r} (relative globs start at "
                f"{Path.cwd()}; supported are {SUFFIXES}{hint}){conversion_hint(endings)}"
            )
        for file in sorted(map(str, matched)):  # once per file, by whatever path
            by_target.setdefault(Path(file).resolve(), file)
    return [Path(path) for path in sorted(by_target.values())]


def _glob(pattern: str) -> list[str]:
    """Return the matches of a glob; a folder's name may contain glob characters."""
    if Path(pattern).is_dir():
        return [pattern]
    return glob.glob(pattern, recursive=True)  # noqa: PTH207  Path.glob rejects absolute globs


def _package(config: SplitSettings, name: str | None) -> str | None:
    """Return the name that is hashed for the split; None: the text is hashed."""
    if config.split_by == "document" or name is None:
        return None
    return f"0 {name}"  # the prefix is a seed: it decides the packages of the validation split


def _folder(path: Path, globs: list[str]) -> str | None:
    """Return the first folder of a file below the fixed part of a glob."""
    for pattern in globs:
        fixed = _fixed(pattern)
        root = fixed if fixed.is_dir() else fixed.parent
        if path.is_relative_to(root) and path.parent != root:
            return path.relative_to(root).parts[0]
    return None


def _fixed(pattern: str) -> Path:
    """Return the folders of a glob before its first wildcard, or the path itself if it exists."""
    path = Path(pattern)
    if path.exists():
        return path
    return Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))


def _capped(files: list[Path], max_bytes: int | None) -> list[Path]:
    """Return the files in order, without those that would exceed max_bytes."""
    if max_bytes is None:
        return files
    selected, left = [], max_bytes
    for path in files:
        if (size := path.stat().st_size) <= left:
            left -= size
            selected.append(path)
    return selected
