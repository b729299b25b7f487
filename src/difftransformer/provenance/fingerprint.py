"""Fingerprints: sha256 digests of everything that a result depends on.

A job reruns when its fingerprint changes, and resumes only from state with the same fingerprint.

The code part covers the import closure of a module, found in syntax trees without importing
anything: every module of this package that an import statement reaches, also inside functions, and
the ``__init__`` of each package on the way. Only code that can change a number counts, see
`syntax`. Left out are

* the table of the attention registry, and imports from that registry or its package into variants:
  the *selected* variant comes in by ``extra_modules``, so that an edit of one variant, or a new
  line in the table, reruns only the runs that use it (likewise the training method, which no
  statement imports);
* the modules for GPUs alone, `_GPU`, where a job does not compute on one;
* the observers: tracking, the context of jobs, the layout of results, the environment capture,
  profiling and this module. They record a computation and do not change it.

Strings that a module uses as data count. Python 3.11 to 3.13 give the same digests.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from difftransformer.errors import ConfigError
from difftransformer.provenance.checksums import file_sha256
from difftransformer.provenance.syntax import dumped, executed, numeric_tree

PACKAGE = "difftransformer"
_ROOT = Path(__file__).resolve().parents[1]
_ATTENTION = f"{PACKAGE}.models.attention"
_REGISTRY_MODULES = frozenset({_ATTENTION, f"{_ATTENTION}.registry"})
_ALWAYS_INCLUDED = frozenset({f"{_ATTENTION}.base", f"{_ATTENTION}.registry"})
_OBSERVERS = frozenset(
    f"{PACKAGE}.{name}"
    for name in (
        *("quiet", "provenance.environment", "provenance.fingerprint", "provenance.layout"),
        *("provenance.command_errors", "provenance.syntax", "tracking", "tracking.address"),
        *("tracking.history", "tracking.run_context", "tracking.sync", "tracking.tracker"),
        "training.profiling",
    )
)
_KERNELS = f"{PACKAGE}.models.kernels"
_GPU = frozenset(
    {f"{PACKAGE}.machine.gpus", *(f"{_KERNELS}.{name}" for name in ("flash", "flex", "fused"))}
)
"""Modules and packages that a job on a CPU imports but does not use in its computation."""


def config_fingerprint(obj: Any) -> str:
    """Return the SHA-256 of the canonical JSON of a pydantic model, dataclass or JSON value.

    Raises:
        TypeError: A value has no JSON form.
        ValueError: A value is NaN or infinite.
    """
    form: dict[str, Any] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    text = json.dumps(obj, sort_keys=True, default=_plain, **form)
    return hashlib.sha256(text.encode()).hexdigest()


def job_fingerprint(
    stage: str, config: Any, code: str, inputs_digest: str, seed: int | None
) -> str:
    """Return the SHA-256 that identifies a job by its stage, config, code, inputs and seed.

    Args:
        stage: Kind of job, such as "training".
        config: Its resolved config.
        code: Digest of its code (`code_fingerprint`).
        inputs_digest: Digest of the content of its input files.
        seed: Its random seed; None if it has none.
    """
    return config_fingerprint(
        {"stage": stage, "config": config, "code": code, "inputs": inputs_digest, "seed": seed}
    )


def code_fingerprint(
    entry: str, extra_modules: Sequence[str] = (), *, on_gpu: bool = True, root: Path | None = None
) -> str:
    """Return the SHA-256 of a module's code and of all code of this package that it imports.

    Args:
        entry: A module such as ``difftransformer.training.pretrain``, or ``module:function``, of
            which only the module counts.
        extra_modules: Modules reached by a registry instead of an import, also as
            ``module:Class``: the selected attention variant and training method.
        on_gpu: Whether to include the modules that only GPU jobs compute with.
        root: Folder of the package's sources; None: the folder of the installed package.

    Raises:
        ConfigError: A module is not in the package, or does not parse.
    """
    names = (entry, *sorted(extra_modules))
    return _digest(tuple(name.partition(":")[0] for name in names), on_gpu, root or _ROOT)


def modules_digest(names: Sequence[str], *, root: Path | None = None) -> str:
    """Return the SHA-256 of the code of the named modules, without the modules that they import.

    Raises:
        ConfigError: A module does not parse.
    """
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name} {_module(name, root or _ROOT)[0]}\n".encode())
    return digest.hexdigest()


def import_closure(
    modules: Iterable[str], root: Path | None = None, *, on_gpu: bool = True
) -> tuple[str, ...]:
    """Return the sorted names of ``modules`` and of all package modules that they import.

    Imports are followed recursively.

    Args:
        modules: Module names, such as ``difftransformer.training.pretrain``.
        root: Folder of the package's sources; None: the folder of the installed package.
        on_gpu: Whether to include the modules that only GPU jobs compute with.

    Raises:
        ConfigError: A module is not in the package, or is not valid Python.
    """
    root = root or _ROOT
    reached: set[str] = set()
    waiting = set(modules)
    for name in waiting:
        if _source(name, root) is None:
            raise ConfigError(f"code fingerprint: module {name!r} is not in the package {PACKAGE}")
    while waiting := waiting - reached - _OBSERVERS:
        reached |= waiting
        waiting = {target for name in waiting for target in _module(name, root)[1]}
        if not on_gpu:
            waiting = {target for target in waiting if not _is_gpu_module(target)}
    return tuple(sorted(reached))


@cache
def _digest(modules: tuple[str, ...], on_gpu: bool, root: Path) -> str:
    digest = hashlib.sha256()
    for name in import_closure(modules, root, on_gpu=on_gpu):
        digest.update(f"{name} {_module(name, root)[0]}\n".encode())
        for table, content in _tables(name, root):
            if on_gpu or not _is_gpu_module(table):
                digest.update(f"{table} {content}\n".encode())
    return digest.hexdigest()


def _is_gpu_module(name: str) -> bool:
    steps = name.split(".")
    return any(".".join(steps[:depth]) in _GPU for depth in range(3, len(steps) + 1))


@cache
def _tables(name: str, root: Path) -> list[tuple[str, str]]:
    """Return names and digests of a package's measured tables, which count as code."""
    path = _source(name, root)
    if path is None or path.name != "__init__.py":
        return []
    tables = sorted(path.parent.glob("*.json"))
    return [
        (f"{name}.{table.stem}", hashlib.sha256(table.read_bytes()).hexdigest()) for table in tables
    ]


def _source(name: str, root: Path) -> Path | None:
    """File of a module of the package; None where there is none."""
    head, *rest = name.split(".")
    if head != PACKAGE:
        return None
    base = root.joinpath(*rest)
    paths = (base / "__init__.py", base.with_suffix(".py"))
    return next((path for path in paths if path.is_file()), None)


@cache
def _module(name: str, root: Path) -> tuple[str, tuple[str, ...]]:
    """Digest of a module's own code, and the modules of the package that it imports."""
    path = _source(name, root)
    assert path is not None, name
    try:
        digest, wanted = _parsed(path.read_bytes(), name, path.name == "__init__.py")
    except SyntaxError as error:
        raise ConfigError(f"{path}:{error.lineno}: not valid Python: {error.msg}") from None
    imported = {target for target in wanted if _source(target, root)} - {name}
    if name in _REGISTRY_MODULES:
        variants = {target for target in imported if target.startswith(f"{_ATTENTION}.")}
        imported -= variants - _ALWAYS_INCLUDED
    return digest, tuple(sorted(imported))


@cache
def _parsed(source: bytes, name: str, is_package: bool) -> tuple[str, frozenset[str]]:
    """Return the digest of a source text, and the modules and packages that it imports.

    Cached by content, so a copy of the sources with one edited file is parsed quickly.
    """
    tree = ast.parse(source)
    imported = _imports(tree, name, is_package)
    if name in _REGISTRY_MODULES:
        tree.body = [node for node in tree.body if not _is_class_table(node)]
    return hashlib.sha256(dumped(numeric_tree(tree, source))).hexdigest(), imported


def _imports(tree: ast.Module, name: str, is_package: bool) -> frozenset[str]:
    modules: set[str] = set()
    for node in executed(tree):
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
            modules.update(".".join(steps[:depth]) for depth in range(1, len(steps) + 1))
    return frozenset(modules)


def _is_class_table(node: ast.stmt) -> bool:
    """Whether this assigns a literal dict of names to "module:Class" texts, or calls with one."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return isinstance(value, ast.Dict) and all(map(_names_a_class, value.values))


def _names_a_class(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return value.as_posix()
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")


def named_digest(files: Iterable[tuple[str, Path]]) -> str:
    """Return the SHA-256 of the given names and of the content of their files.

    Args:
        files: Pairs of a name and the path of its file; the path itself does not count.
    """
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(f"{name}\0".encode() + bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()
