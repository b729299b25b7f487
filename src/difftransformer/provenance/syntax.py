"""Reduce the syntax tree of a module to the code that can change a number.

Comments are not in a tree. Removed from it are

* docstrings, and texts below constants and fields;
* docstrings, and strings below constants and fields;
* strings in ``raise`` and ``assert``, and in statements that log or warn. Names and calls in these
  statements stay. Strings in a call inside a message stay too, since the call may have an effect;
* strings of the keyword ``help``;
* annotations of signatures and of local variables. Annotations in class bodies stay, since pydantic
  and dataclasses read them. A function with a decorator that may read its annotations (Triton,
  ``torch.library``) keeps them;
* the documentation and the bounds in ``setting(...)`` and ``Field(...)``: the settings of a job
  contain the resolved value;
* imports under ``if TYPE_CHECKING``.
"""

import ast
import sys
from collections.abc import Iterator
from typing import Any

_DOCUMENTING = frozenset({"meaning", "unit", "source", "holds", "description", "title", "examples"})
_BOUNDS = frozenset(
    {"ge", "gt", "le", "lt", "below", "multiple_of", "pattern", "min_length", "max_length"}
)
_FIELDS = frozenset({"setting", "Field"})
_LOGGERS = frozenset({"logger", "_log", "logging", "warnings"})
_LEVELS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
_IGNORE_ANNOTATIONS = frozenset(
    {
        *("property", "cached_property", "classmethod", "staticmethod", "abstractmethod"),
        *("cache", "lru_cache", "contextmanager", "inference_mode", "no_grad", "override"),
        *("model_validator", "wraps"),
    }
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def numeric_tree(tree: ast.Module, source: bytes) -> ast.Module:
    """Remove documentation and messages from a syntax tree in place, and return the tree.

    Args:
        tree: Syntax tree of a module.
        source: Source text of the module; searched first, so that most calls need not be visited.
    """
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, local = stack.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                local = all(map(_ignores_annotations, node.decorator_list))
                if local:
                    _remove_annotations(node)
            case ast.ClassDef():
                local = False
            case ast.If() if is_type_checking(node):
                node.body = [ast.Pass()]
            case ast.AnnAssign() if local:
                node.annotation = ast.Constant(None)
            case _:
                _remove_message(node)
        if isinstance(node, ast.Module | ast.ClassDef | _Function):
            node.body = [statement for statement in node.body if not _is_text(statement)]
        stack.extend((statement, local) for statement in statements(node))
    if any(word in source for word in (b"setting(", b"Field(", b"help=")):
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Call):
                _remove_documentation(statement)
    return tree


def dumped(tree: ast.Module) -> bytes:
    """Return a syntax tree as text in bytes, the same for Python 3.11 to 3.13."""
    more: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    return ast.dump(tree, **more).replace(", type_params=[]", "").encode()


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Iterate over a tree and all statements in it, except those under ``if TYPE_CHECKING``."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        if is_type_checking(node):
            stack.extend(getattr(node, "orelse", ()))
        else:
            stack.extend(statements(node))


def is_type_checking(node: ast.AST) -> bool:
    """Return whether a node is an ``if TYPE_CHECKING`` statement."""
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the statements directly inside a node; expressions contain none.

    This visits about a tenth of the nodes that `ast.walk` visits.
    """
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inside = getattr(node, field, ())
        if isinstance(inside, list):  # the body of a lambda is an expression
            yield from inside


def _is_text(node: ast.stmt) -> bool:
    """Whether this is a docstring, or the text below a constant or a field."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _ignores_annotations(decorator: ast.expr) -> bool:
    name = decorator.func if isinstance(decorator, ast.Call) else decorator
    own = getattr(name, "attr", getattr(name, "id", None))
    return own in _IGNORE_ANNOTATIONS


def _remove_annotations(function: _Function) -> None:
    function.returns = None
    of = function.args
    for argument in (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg):
        if argument is not None:
            argument.annotation = None


def _remove_message(node: ast.AST) -> None:
    match node:
        case ast.Raise(exc=ast.Call() as call):
            _remove_arguments(call)
        case ast.Assert(msg=ast.expr() as message):
            node.msg = _without_text(message)
        case ast.Expr(value=ast.Call() as call) if _reports(call.func):
            _remove_arguments(call)


def _reports(function: ast.expr) -> bool:
    """Whether this is a method that logs or warns."""
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _LEVELS
        and isinstance(function.value, ast.Name)
        and function.value.id in _LOGGERS
    )


def _remove_arguments(call: ast.Call) -> None:
    call.args = [_without_text(argument) for argument in call.args]
    for word in call.keywords:
        word.value = _without_text(word.value)


def _without_text(node: ast.expr) -> ast.expr:
    """Return a message without its texts; calls in it stay as they are, but for ``"".join``."""
    match node:
        case ast.Constant(value=str()):
            return ast.Constant("")
        case ast.JoinedStr():
            values = [_without_format(part) for part in node.values if not _is_constant(part)]
            return ast.JoinedStr(values) if values else ast.Constant("")
        case ast.BinOp():
            node.left, node.right = _without_text(node.left), _without_text(node.right)
        case ast.IfExp():
            node.body, node.orelse = _without_text(node.body), _without_text(node.orelse)
        case ast.Tuple():
            node.elts = [_without_text(part) for part in node.elts]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str())) as method):
            method.value = ast.Constant("")
    return node


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _without_format(node: ast.expr) -> ast.expr:
    """Return a placeholder of an f-string without its format."""
    if isinstance(node, ast.FormattedValue):
        return ast.FormattedValue(_without_text(node.value), -1, None)
    return node


def _remove_documentation(call: ast.Call) -> None:
    name = getattr(call.func, "id", getattr(call.func, "attr", None))
    unread = (_DOCUMENTING | _BOUNDS) if name in _FIELDS else frozenset()
    call.keywords = [word for word in call.keywords if word.arg not in unread]
    for word in call.keywords:
        if word.arg == "help":
            word.value = _without_text(word.value)
