"""Fingerprints: what a result depends on, as sha256 digests.

A job is rerun when its fingerprint changes, and never resumes state made under another one.

The code part is the import closure of one module, read from the syntax trees without importing
anything. It holds every module of this package that is reached by an import statement, also by one
inside a function, and the ``__init__`` of each package on the way. Left out of it are

* comments, docstrings, texts below constants and fields, and the documenting keywords of
  ``setting(...)`` (meaning, unit, source, holds);
* imports under ``if TYPE_CHECKING``;
* the table of the attention registry, and imports from that registry or its package into variants:
  the *selected* variant comes in by ``extra_modules``, so that an edit of one variant, or a new
  line in the table, reruns only the runs that use it (likewise the training method, which no
  statement imports);
* the observers: tracking, its spool and sink, the environment capture, the job frame and this
  module. They watch a computation and do not take part in it.

Texts of error messages are code and count. Another Python (3.11 to 3.13 were tried) reruns nothing.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from difftransformer.errors import ConfigError
from difftransformer.provenance.published import file_sha256

PACKAGE = "difftransformer"
_ROOT = Path(__file__).resolve().parents[1]
_ATTENTION = f"{PACKAGE}.models.attention"
_SEAMS = frozenset({_ATTENTION, f"{_ATTENTION}.registry"})
_BEHIND_NO_SEAM = frozenset({f"{_ATTENTION}.base", f"{_ATTENTION}.registry"})
_OBSERVERS = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        *("quiet", "provenance.environment", "provenance.fingerprint", "provenance.job"),
        *("provenance.journal", "provenance.mlflow_batch", "provenance.mlflow_sink"),
        *("provenance.mlflow_store", "provenance.reporting", "provenance.spool"),
        *("provenance.sync", "provenance.tracking"),
    )
)
_DOCUMENTING = frozenset({"meaning", "unit", "source", "holds"})


def slice_fingerprint(obj: Any) -> str:
    """sha256 of the canonical JSON of a settings model or of plain JSON values.

    Raises:
        TypeError: a value that has no JSON form.
        ValueError: NaN or an infinity.
    """
    form: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    text = json.dumps(obj, sort_keys=True, default=_plain, **form)
    return hashlib.sha256(text.encode()).hexdigest()


def job_fingerprint(stage: str, slice: Any, code: str, inputs_digest: str, seed: int | None) -> str:
    """Identity of a job's result: stage, resolved settings, code, content of inputs, seed."""
    return slice_fingerprint(
        {"stage": stage, "slice": slice, "code": code, "inputs": inputs_digest, "seed": seed}
    )


def code_fingerprint(
    entry: str, extra_modules: Sequence[str] = (), *, root: Path | None = None
) -> str:
    """sha256 over the code that ``entry`` can reach within this package.

    Args:
        entry: A module such as ``difftransformer.training.pretrain``; of ``module:function`` the
            module counts.
        extra_modules: Modules reached by a registry instead of an import, also as
            ``module:Class``: the selected attention variant and training method.
        root: Folder of the package's sources; the installed package when left out.

    Raises:
        ConfigError: a module that is not in the package, or that does not parse.
    """
    names = (entry, *sorted(extra_modules))
    return _digest(tuple(name.partition(":")[0] for name in names), root or _ROOT)


def modules_digest(names: Sequence[str], *, root: Path | None = None) -> str:
    """sha256 over the code of modules alone, without what they import and the tables beside them.

    Raises:
        ConfigError: a module that does not parse.
    """
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name} {_code(name, root or _ROOT)[0].hexdigest()}\n".encode())
    return digest.hexdigest()


def import_closure(modules: Iterable[str], root: Path | None = None) -> tuple[str, ...]:
    """Sorted names of the package's modules that ``modules`` reach, themselves included."""
    root = root or _ROOT
    found: set[str] = set()
    waiting = set(modules)
    for name in waiting:
        if _source(name, root) is None:
            raise ConfigError(f"code fingerprint: module {name!r} is not in the package {PACKAGE}")
    while waiting := waiting - found - _OBSERVERS:
        found |= waiting
        waiting = {target for name in waiting for target in _module(name, root)[1]}
    return tuple(sorted(found))


@cache
def _digest(modules: tuple[str, ...], root: Path) -> str:
    digest = hashlib.sha256()
    for name in import_closure(modules, root):
        digest.update(f"{name} {_module(name, root)[0]}\n".encode())
    return digest.hexdigest()


def _source(name: str, root: Path) -> Path | None:
    """File of a module of the package; None where there is none."""
    head, *rest = name.split(".")
    if head != PACKAGE:
        return None
    base = root.joinpath(*rest)
    places = (base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in places if path.is_file()), None)


@cache
def _module(name: str, root: Path) -> tuple[str, tuple[str, ...]]:
    """Digest of a module's own code, and the modules of the package that it imports."""
    digest, imported, path = _code(name, root)
    if path.name == "__init__.py":  # measured tables of a package are as good as its code
        for table in sorted(path.parent.glob("*.json")):
            digest.update(table.read_bytes())
    return digest.hexdigest(), tuple(sorted(imported))


def _code(name: str, root: Path) -> tuple[Any, set[str], Path]:
    """A module's code as it is hashed, what it imports, and its file."""
    path = _source(name, root)
    assert path is not None, name
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None
    imported = _imports(tree, name, path.name == "__init__.py", root)
    if name in _SEAMS:
        variants = {target for target in imported if target.startswith(f"{_ATTENTION}.")}
        imported -= variants - _BEHIND_NO_SEAM
    _strip(tree, drop_tables=name in _SEAMS, has_settings=b"setting(" in source)
    return hashlib.sha256(_dumped(tree)), imported, path


def _dumped(tree: ast.Module) -> bytes:
    """As every Python has it: 3.12 knows parameters of types, 3.13 leaves out what is empty."""
    more: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **more).replace(", type_params=[]", "").encode()


def _imports(tree: ast.Module, name: str, is_package: bool, root: Path) -> set[str]:
    found: set[str] = set()
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".")
                parts = parts[: len(parts) - node.level + int(is_package)]
                base = ".".join([*parts, base] if base else parts)
            wanted = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for target in wanted:
            steps = target.split(".")
            prefixes = (".".join(steps[:depth]) for depth in range(1, len(steps) + 1))
            found.update(prefix for prefix in prefixes if _source(prefix, root))
    return found - {name}


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements but those that only a type checker sees."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if _asks_for_types(node):
            stack.extend(getattr(node, "orelse", ()))
        else:
            stack.extend(_inside(node))


def _asks_for_types(node: ast.AST) -> bool:
    """Whether a type checker alone reads its body: ``if TYPE_CHECKING``, of typing or not."""
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Statements of a statement, which are a tenth of its nodes; no expression has any."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, field, ())


def _strip(tree: ast.Module, *, drop_tables: bool, has_settings: bool) -> None:
    """Remove what documents and does not compute."""
    if drop_tables:
        tree.body = [node for node in tree.body if not _is_class_table(node)]
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_text(one)]
        elif isinstance(node, ast.If) and _asks_for_types(node):
            node.body = [ast.Pass()]
        stack.extend(_inside(node))
    for node in ast.walk(tree) if has_settings else ():
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "setting":
            node.keywords = [word for word in node.keywords if word.arg not in _DOCUMENTING]


def _is_class_table(node: ast.stmt) -> bool:
    """Whether this assigns a literal dict of names to "module:Class" texts, or calls with one."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return isinstance(value, ast.Dict) and all(map(_names_a_class, value.values))


def _names_a_class(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value


def _is_text(node: ast.stmt) -> bool:
    """Whether this is a docstring, or the text below a constant or a field."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")


def named_digest(files: Iterable[tuple[str, Path]]) -> str:
    """sha256 over the content of files and names that do not change with the folder they lie in."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0".encode() + bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()
