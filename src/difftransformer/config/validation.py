"""Validation of plain data as typed settings, with one-line error messages."""

import json
import re
from collections.abc import Callable, Collection
from functools import cache
from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from difftransformer.config.base import LONGEST_NAME, distinct
from difftransformer.config.known_keys import Schema, anywhere, beside, inside
from difftransformer.errors import ConfigError, closest, nearest

T = TypeVar("T")
Origin = Callable[[tuple[str, ...]], str]

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Returns a type's pydantic adapter, cached, since pydantic would rebuild its schema each time."""


def names_from(allowed: Collection[str], noun: str) -> Callable[[list[str]], list[str]]:
    """Return a validator of lists of names.

    Args:
        allowed: Allowed names; each may occur once.
        noun: Word for a name in error messages, such as "suite".
    """

    def check(names: list[str]) -> list[str]:
        for name in names:
            if name not in allowed:
                raise ValueError(f"unknown {noun} '{name}'{nearest(name, allowed)}")
        return distinct(names)

    return check


def validate(kind: type[T], raw: Any, location: str, origin: Origin | None = None) -> T:
    """Return plain data as a validated instance of a type.

    Args:
        kind: A pydantic model, or any other type.
        raw: Plain data as read from YAML, or the bytes of a JSON file.
        location: File and key path for error messages about keys that ``origin`` does not know.
        origin: Function from the path of a key in ``raw`` to the location that set the key, or "".

    Raises:
        ConfigError: One line with location, key, value found, values allowed and nearest name.
    """
    adapter: TypeAdapter[T] = _adapter(kind)
    try:
        if isinstance(raw, bytes):
            return adapter.validate_json(raw)
        return adapter.validate_python(raw)
    except ConfigError as error:  # of nested settings whose class depends on a key
        raise ConfigError(f"{location}: {error}") from None
    except ValidationError as error:
        details = error.errors(include_url=False)
    raise ConfigError(_describe(details, raw, adapter, location, origin))


def validate_part(kind: type[BaseModel], raw: Any, location: str) -> None:
    """Check a part of the settings of a pydantic model; missing keys are allowed.

    Raises:
        ConfigError: A key is unknown, or a value has a wrong type or size.
    """
    adapter = _adapter(kind)
    try:
        adapter.validate_python(raw)
    except ValidationError as error:
        details = [
            detail
            for detail in error.errors(include_url=False)
            if detail["type"] not in _OF_ALL_KEYS
        ]
        if details:
            raise ConfigError(_describe(details, raw, adapter, location)) from None


_OF_ALL_KEYS = ("missing", "value_error")
"""Pydantic errors that concern all keys together, so that a part of the keys may raise them."""


def _describe(
    details: list[ErrorDetails],
    raw: Any,
    adapter: TypeAdapter[Any],
    location: str,
    origin: Origin | None = None,
) -> str:
    if isinstance(raw, bytes):
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raw = details[0].get("input")
    # Prefer an unknown key to a missing one: a misspelled key raises both errors.
    detail = min(details, key=lambda item: item["type"] == "missing")
    path = _path_in(raw, detail["loc"])
    key_location = (origin(tuple(map(str, path))) if origin else "") or location
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    key = key.removeprefix(".")
    same_value = [
        candidate
        for candidate in details
        if candidate is detail or _is_beside(candidate, detail, raw)
    ]
    text = f"{key_location}: {key + ': ' if key else ''}{_any_of(same_value, path, adapter)}"
    num_others = len(details) - len(same_value)
    return text + (f" (and {num_others} more)" if num_others else "")


def _is_beside(detail: ErrorDetails, other: ErrorDetails, raw: Any) -> bool:
    """Return whether two errors concern the same value, which matches no member of a union."""
    of_keys = "[key]" in (*detail["loc"], *other["loc"])
    return not of_keys and _path_in(raw, detail["loc"]) == _path_in(raw, other["loc"])


def _any_of(
    details: list[ErrorDetails], path: tuple[int | str, ...], adapter: TypeAdapter[Any]
) -> str:
    """Return the text of what each type of a union expects of a value, and what was found."""
    received = f", got {_short(details[0].get('input'))}"
    parts = [_problem(detail, path, adapter).partition(received) for detail in details]
    expected, hints = (dict.fromkeys(part[index] for part in parts) for index in (0, 2))
    got = received if any(part[1] for part in parts) else ""
    return ", or ".join(expected) + got + "".join(hints)


def _path_in(raw: Any, loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Return a pydantic location without the parts that name union members, not keys of data."""
    path: list[int | str] = []
    value = raw
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if part == "[key]":
            return tuple(path[:-1])
        if isinstance(value, dict) and (part in value or last):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif not last:
            continue
        else:
            break
        path.append(part)
    return tuple(path)


_NEEDED = {
    "bool_type": "true or false",
    "dataclass_type": "a mapping of keys",
    "dict_type": "a mapping of keys",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "a list",
    "model_type": "a mapping of keys",
    "string_type": "text",
    "tuple_type": "a list",
}
"""Words for the expected type in YAML, by pydantic's name of the error."""


def _problem(detail: ErrorDetails, path: tuple[int | str, ...], adapter: TypeAdapter[Any]) -> str:
    value, kind = detail.get("input"), detail["type"]
    got = f"got {_short(value)}"
    match kind:
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"unknown key{_nearest_key(adapter.json_schema(), path)}"
        case "missing" if isinstance(value, list | tuple):
            text = f"an item is missing, got {_short(list(value))}"
        case "missing":
            text = "required key is missing"
        case "value_error":
            text = str(detail["ctx"]["error"])
        case "finite_number":
            text = f"needs a finite number, {got}"
        case "string_pattern_mismatch" if "A-Za-z" not in detail["ctx"]["pattern"]:
            text = f"needs text of the form {detail['ctx']['pattern']}, {got}"
        case "string_pattern_mismatch":
            text = f"{_short(value)} is no name: take 1 to {LONGEST_NAME} letters, digits and _"
        case _ if kind in _NEEDED:
            text = f"needs {_NEEDED[kind]}, {got}{_hint(kind, value) or _only_key(adapter, detail)}"
        case _:
            text = f"{detail['msg'][0].lower()}{detail['msg'][1:]}, {got}"
    return text


def _nearest_key(schema: Schema, path: tuple[int | str, ...]) -> str:
    """Return a hint with the known key most similar to an unknown one."""
    key = str(path[-1])
    if belongs := inside(schema, key):
        return belongs
    near, all_keys = beside(schema, path) - {key}, anywhere(schema) - {key}
    return nearest(key, near if closest(key, near) or not closest(key, all_keys) else all_keys)


def _hint(kind: str, value: Any) -> str:
    """Return a hint how to write a value that only has the wrong type."""
    if kind in ("dict_type", "model_type") and value is None:
        return "; indent what belongs to it below it"
    if kind == "string_type" and isinstance(value, bool):
        return "; YAML reads no, off, yes and on as false and true: put the text in quotes"
    if kind == "bool_type" and str(value).lower() in ("no", "off", "yes", "on", "true", "false"):
        return "; take the quotes away"
    if kind in ("float_type", "int_type") and isinstance(value, str | float):
        return _number_hint(str(value), integer=kind == "int_type")
    return ""


def _number_hint(text: str, *, integer: bool) -> str:
    number = _number(text)
    if number is None:
        return "; write a plain number without unit or separator" if _DIGIT.search(text) else ""
    if integer:
        is_integer = number == int(number)
        return f"; write {int(number)}" if is_integer else "; fractions are not allowed"
    if "e" in text.lower():
        return f"; YAML reads a number like 1e-4 as text: write {_with_point(text)}"
    return f"; write {number!r} without quotes"


def _only_key(adapter: TypeAdapter[Any], detail: ErrorDetails) -> str:
    """Return a hint for a mapping with one required key that was given as the key's value."""
    name, value = detail.get("ctx", {}).get("class_name"), detail.get("input")
    required = adapter.json_schema().get("$defs", {}).get(name, {}).get("required", [])
    if detail["type"] == "model_type" and isinstance(value, str) and len(required) == 1:
        return f"; write {{{required[0]}: {_short(value)[1:-1]}}}"
    return ""


_DIGIT = re.compile("[0-9]")


def _with_point(text: str) -> str:
    """Return a number with an exponent in the form that YAML 1.1 requires: 1e-4 as 1.0e-4."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    sign = "" if exponent[:1] in ("-", "+") else "+"
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{sign}{exponent}"


def _number(text: str) -> float | None:
    """Return the value of a number with separators or a unit k, M, G, B; None: not a number."""
    parts = re.fullmatch(
        r"\s*([-+]?[0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)([kKMGB]?)\s*", text
    )
    if parts is None:
        return None
    digits = parts[1].replace("_", "")
    if "," in digits and not re.fullmatch(r"[-+]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?", digits):
        return None
    factor = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}[parts[2].lower()]
    value = float(digits.replace(",", "")) * factor
    return value if isfinite(value) else None


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
