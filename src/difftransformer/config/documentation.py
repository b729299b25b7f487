"""JSON Schemas and a readable page of every setting, both generated from the config models."""

from collections.abc import Iterator, Mapping
from inspect import get_annotations
from textwrap import fill
from typing import Any

import yaml
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DataclassSchema, ModelSchema

from difftransformer.config.known_keys import Schema, branches, inner, referred

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN_NAMES = {"boolean": "true or false", "string": "text", "array": "list", "object": "mapping"}
"""What a reader of YAML calls a type; the others by their own names."""
_LIMITS = {
    "exclusiveMinimum": ">",
    "minimum": "≥",
    "exclusiveMaximum": "<",
    "maximum": "≤",
    **dict.fromkeys(("minItems", "minLength", "minProperties"), "at least"),
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties"), "at most"),
}


def config_schema(models: Mapping[str, type]) -> dict[str, Schema]:
    """JSON Schema of each YAML file, for editors that complete and check, in the order of names.

    ``models`` has the model of each whole file; schemas hold plain JSON values only.
    """
    return {
        name: {"$schema": _DIALECT, **TypeAdapter(models[name]).json_schema(), "title": name}
        for name in sorted(models)
    }


def config_readme(models: Mapping[str, type], opening: str = "") -> str:
    """Markdown page with a list of settings for each YAML file, in the order given.

    Nested groups are expanded by dotted path; ``<name>`` stands for a key the user chooses,
    ``[]`` for an item of a list, and ``{kind=...}`` for one choice of a tagged group. ``models``
    has the model of each whole file; ``opening`` stands above them.
    """
    lines = ["# Settings", "", opening.strip(), ""] if opening else ["# Settings", ""]
    lines.append("Generated from the typed settings: `difftransformer write_schema` rewrites it.")
    for name, model in models.items():
        schema = TypeAdapter(model).json_schema(schema_generator=_OwnFirst)
        # Unions of containers of one group would repeat its settings.
        items = dict.fromkeys(_Page(schema).items(schema, ""))
        if not items:
            continue
        meaning = " ".join(schema.get("description", "").split("\n\n")[0].split())
        lines += ["", f"## {name}", "", *([_filled(meaning), ""] if meaning else []), *items]
    return "\n".join(lines) + "\n"


class _OwnFirst(GenerateJsonSchema):
    """A group's own settings before those that it inherits."""

    def model_schema(self, schema: ModelSchema) -> Schema:
        return _own_first(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: DataclassSchema) -> Schema:
        return _own_first(super().dataclass_schema(schema), schema["cls"])


def _own_first(schema: Schema, kind: type) -> Schema:
    own = get_annotations(kind)
    ordered = sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in own)
    return schema | {"properties": dict(ordered)}


class _Page:
    """Writes the settings of one schema as items of a list."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def items(self, group: Schema, prefix: str) -> Iterator[str]:
        """Every setting of a group and of the groups in it, by dotted path."""
        for name, field in group["properties"].items():
            key = f"{prefix}.{name}" if prefix else name
            yield self._item(key, field, required=name in group.get("required", ()))
            yield from self._nested(field, key)

    def _nested(self, field: Schema, path: str) -> Iterator[str]:
        """Settings of the groups that a field can hold, if any."""
        choices = list(branches(field, self._schema))
        groups = [one for one in choices if "properties" in one]
        for group in groups:
            yield from self.items(group, path + (_tag(group) if len(groups) > 1 else ""))
        for one in choices:
            if "items" in one:
                yield from self._nested(one["items"], f"{path}[]")
            elif one.get("type") == "object" and one not in groups:
                yield from self._nested(inner(one, "<name>") or {}, f"{path}.<name>")

    def _item(self, key: str, field: Schema, *, required: bool) -> str:
        """One setting with its type, unit, default, meaning and source, on lines of their own."""
        limits = [
            f"{sign} {one[limit]}"
            for one in branches(field, self._schema)
            if "prefixItems" not in one  # as many as there are
            for limit, sign in _LIMITS.items()
            if limit in one
        ]
        kind = _type_name(field) + (f" ({', '.join(limits)})" if limits else "")
        group = referred(field, self._schema)
        default = "as below" if group else _as_yaml(field.get("default"))
        about = [kind, field.get("unit"), "required" if required else f"default {default}"]
        # A field that says the same of itself as its group leaves it out.
        said = field.get("description") or group.get("description", "")
        meaning = " ".join(said.split()).removesuffix(".")
        source = " ".join(field.get("source", "").split())
        text = f"- `{key}` ({', '.join(filter(None, about))}): {meaning}."
        return _filled(f"{text} *Source: {source}.*" if source else text, "  ")


def _filled(text: str, indent: str = "") -> str:
    return fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _tag(group: Schema) -> str:
    """``{kind=name}`` from the group's required literal field, else its class name."""
    for name, field in group["properties"].items():
        if "const" in field and name in group.get("required", ()):
            return f"{{{name}={field['const']}}}"
    return f"{{{group['title']}}}"


def _type_name(field: Schema) -> str:
    """Name a type as a reader of YAML would."""
    match field:
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(dict.fromkeys(map(_type_name, choices)))
        case {"const": value}:
            return _as_yaml(value)
        case {"enum": values}:
            return " or ".join(map(_as_yaml, values))
        case {"items": item} | {"prefixItems": [item, *_]}:
            return f"list of {_type_name(item)}"
        case {"type": "object"}:
            values = inner(field, "<name>") or {}
            return f"mapping to {_type_name(values)}"
    kind: str = "group" if "$ref" in field else field.get("type", "any")
    return _PLAIN_NAMES.get(kind, kind)


def _as_yaml(value: Any) -> str:
    """Write a value as in a YAML file: 1.0e-08 is a number there, 1e-08 a text."""
    style = '"' if isinstance(value, str) and "\n" in value else None  # one line each
    text = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=True, width=10**6
    )
    return f"`{text.strip()[1:-1]}`"
