"""Allowed keys from the JSON Schema of a type, for hints in error messages."""

from collections.abc import Iterator, Sequence
from typing import Any

Schema = dict[str, Any]
"""A JSON Schema made by pydantic, or a part of one."""


def beside(schema: Schema, path: Sequence[int | str]) -> set[str]:
    """Return the allowed keys of the mapping that contains the last key of ``path``."""
    groups = list(branches(schema, schema))
    for key in path[:-1]:
        parts = (inner(group, key) for group in groups)
        groups = [branch for part in parts if part for branch in branches(part, schema)]
    return {name for group in groups for name in group.get("properties", {})}


def anywhere(schema: Schema) -> set[str]:
    """Return all keys that a schema allows at any depth."""
    parts = (schema, *schema.get("$defs", {}).values())
    return {name for part in parts for name in part.get("properties", {})}


def inside(schema: Schema, key: str) -> str:
    """Return a hint for an error message if ``key`` belongs to a nested group, or else ''."""
    for group, group_schema in schema.get("properties", {}).items():
        if key in group_schema.get("holds", ()):
            return f"; did you mean '{group}.{key}'?"
        part = referred(group_schema, schema)
        for name, field in part.get("properties", {}).items():
            if key in (name, *field.get("holds", ())):
                path = f"{group}.{key}" if key == name else f"{group}.{name}.{key}"
                return f"; did you mean '{path}'?"
    return ""


def branches(part: Schema, schema: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a part of a schema: each type of a union, references resolved."""
    if "$ref" in part:
        yield from branches(referred(part, schema), schema)
    elif kinds := part.get("anyOf", part.get("oneOf")):
        for kind in kinds:
            yield from branches(kind, schema)
    else:
        yield part


def inner(group: Schema, key: int | str) -> Schema | None:
    """Return the schema of a mapping's value at ``key``, or of a list's items; None if unknown."""
    if isinstance(key, int):
        return group.get("items")
    named = group.get("patternProperties", {}).values()  # at most one pattern, for names
    part = group.get("properties", {}).get(key, next(iter(named), None))
    part = group.get("additionalProperties") if part is None else part
    return part if isinstance(part, dict) else None


def referred(part: Schema, schema: Schema) -> Schema:
    """Return the definition that a part of a schema refers to; empty without a reference."""
    part_schema: Schema = schema.get("$defs", {}).get(part.get("$ref", "").rpartition("/")[2], {})
    return part_schema
