"""Turning raw mappings into typed settings, and pydantic's complaints into one readable line."""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from difftransformer.errors import ConfigError

T = TypeVar("T")


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return a hint such as ``; did you mean 'lr'?``, or the allowed names when none is close."""
    names = sorted(allowed)
    close = get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; allowed: {', '.join(names)}" if names else ""


def lookup(mapping: Mapping[str, T], name: str, what: str, where: str) -> T:
    """Return ``mapping[name]``.

    Raises:
        ConfigError: If the name is unknown; offers the nearest one.
    """
    try:
        return mapping[name]
    except KeyError:
        raise ConfigError(f"{where}: unknown {what} '{name}'{nearest(name, mapping)}") from None


def validate(
    kind: Any, raw: Any, where: str, origin: Callable[[tuple[str, ...]], str] | None = None
) -> Any:
    """Return ``raw`` as an instance of ``kind``, a pydantic model or any annotated type.

    Args:
        kind: The type to validate against.
        raw: Plain data as read from YAML or JSON.
        where: File and key path that errors name when ``origin`` does not know better.
        origin: Maps the path of a bad key inside ``raw`` to the place that set it.

    Raises:
        ConfigError: One line: place, key, what was found, what is allowed, the nearest name.
    """
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise ConfigError(_describe(details, raw, adapter, where, origin)) from None


def _describe(
    details: list[ErrorDetails],
    raw: Any,
    adapter: TypeAdapter[Any],
    where: str,
    origin: Callable[[tuple[str, ...]], str] | None,
) -> str:
    # An unknown key explains a missing one better than the other way round.
    detail = min(details, key=lambda item: item["type"] == "missing")
    path = _path_in(raw, detail["loc"])
    place = (origin(path) if origin else "") or where
    key = ".".join(path)
    text = f"{place}: {key + ': ' if key else ''}{_problem(detail, adapter)}"
    rest = len(details) - 1
    return text + (f" (and {rest} more)" if rest else "")


def _path_in(raw: Any, loc: tuple[int | str, ...]) -> tuple[str, ...]:
    """Drop the parts of a pydantic location that name union members, not keys of the data."""
    path: list[str] = []
    value = raw
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(value, dict) and (part in value or last):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif not last:
            continue
        else:
            break
        path.append(str(part))
    return tuple(path)


def _problem(detail: ErrorDetails, adapter: TypeAdapter[Any]) -> str:
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    found = detail.get("input")
    match detail["type"]:
        case "extra_forbidden":
            return f"unknown key{nearest(key, _field_names(adapter, key))}"
        case "missing":
            return "required key is missing"
        case "float_type" if isinstance(found, str) and _is_number(found):
            return f"got the text '{found}'; YAML reads a number like 1e-4 as text, write 1.0e-4"
        case "value_error":
            return str(detail["ctx"]["error"])
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, got {_short(found)}"


def _field_names(adapter: TypeAdapter[Any], key: str) -> set[str]:
    """Every key the type knows at any depth, but the misspelt one."""
    names: set[str] = set()
    schema = adapter.json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        names.update(part.get("properties", {}))
    return names - {key}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
