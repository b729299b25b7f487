"""JSON Schemas and a readable page of every setting, both generated from the config models.

A file's model is either one group of settings or a mapping from names to groups (a pydantic
``RootModel[dict[str, ...]]``), so both ``config.yaml`` and ``runs.yaml`` can be described.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from inspect import get_annotations
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, RootModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import to_jsonable_python

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN_NAMES: dict[Any, str] = {
    type(None): "null",
    Any: "any",
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    list: "list",
    tuple: "list",
    dict: "mapping",
}


@dataclass(frozen=True)
class _Row:
    """One entry of a list: a setting's dotted path and what is known about it."""

    key: str
    type: str
    default: str
    unit: str
    meaning: str
    source: str

    def item(self) -> str:
        """One entry of a list, on lines that can be read."""
        about = [self.type, self.unit]
        about.append("required" if self.default == "required" else f"default {self.default}")
        source = f" *Source: {self.source}.*" if self.source else ""
        text = f"- {self.key} ({', '.join(filter(None, about))}): {self.meaning}{source}"
        return _filled(text, "  ")


def config_schema(models: Mapping[str, type[BaseModel]]) -> dict[str, dict[str, Any]]:
    """JSON Schema of each YAML file, for editors that complete and check.

    Args:
        models: YAML file name (as shown to users) -> the model of the whole file.

    Returns:
        File name -> schema, in the order of file names; plain JSON values only.
    """
    schemas = {}
    for name in sorted(models):
        schema = models[name].model_json_schema(mode="validation")
        schemas[name] = {"$schema": _DIALECT, **schema, "title": name}
    return schemas


def config_readme(models: Mapping[str, type[BaseModel]], opening: str = "") -> str:
    """Markdown page with a list of settings for each YAML file, in the order given.

    Nested groups are expanded by dotted path; ``<name>`` stands for a key the user chooses,
    ``[]`` for an item of a list, and ``{kind=...}`` for one choice of a tagged group.

    Args:
        models: YAML file name -> the model of the whole file.
        opening: What stands above them.
    """
    lines = ["# Settings", "", opening.strip(), ""] if opening else ["# Settings", ""]
    lines.append("Generated from the typed settings: `difftransformer write_schema` rewrites it.")
    for name, model in models.items():
        rows = _unique(_model_rows(model, "", ()))
        if not rows:
            continue
        meaning = _first_paragraph(model)
        lines += ["", f"## {name}", "", *([_filled(meaning), ""] if meaning else [])]
        lines += [row.item() for row in rows]
    return "\n".join(lines) + "\n"


def _filled(text: str, indent: str = "") -> str:
    return fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _model_rows(
    model: type[BaseModel], prefix: str, seen: tuple[type[BaseModel], ...]
) -> Iterator[_Row]:
    """Rows of a group's fields, its own before inherited ones; inside itself it is shown once."""
    if model in seen:
        return
    seen = (*seen, model)
    if issubclass(model, RootModel):
        yield from _nested_rows(model.model_fields["root"].annotation, prefix, seen)
        return
    own = get_annotations(model)
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] not in own):
        if SkipJsonSchema in map(type, field.metadata):
            continue  # filled in, not written by people
        key = f"{prefix}.{field.alias or name}" if prefix else field.alias or name
        yield _field_row(key, field)
        yield from _nested_rows(field.annotation, key, seen)


def _nested_rows(annotation: Any, path: str, seen: tuple[type[BaseModel], ...]) -> Iterator[_Row]:
    """Rows of the groups that a field's type contains, if any."""
    annotation = _bare(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _model_rows(annotation, path, seen)
    elif origin in (Union, types.UnionType):
        groups = [_bare(one) for one in arguments if _is_group(_bare(one))]
        for group in groups:
            tag = _tag(group) if len(groups) > 1 else ""
            yield from _model_rows(group, f"{path}{tag}", seen)
        for one in arguments:
            if not _is_group(_bare(one)):
                yield from _nested_rows(one, path, seen)
    elif origin in (list, tuple) and arguments:
        yield from _nested_rows(arguments[0], f"{path}[]", seen)
    elif origin in (dict, Mapping) and len(arguments) == 2:
        yield from _nested_rows(arguments[1], f"{path}.<name>" if path else "<name>", seen)


def _field_row(key: str, field: FieldInfo) -> _Row:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    limits = ", ".join(text for text in map(_limit, field.metadata) if text)
    kind = _type_name(field.annotation) + (f" ({limits})" if limits else "")
    return _Row(
        key=f"`{key}`",
        type=kind,
        default=_default(field),
        unit=str(extra.get("unit") or ""),
        meaning=" ".join((field.description or "").split()).removesuffix(".") + ".",
        source=" ".join(str(extra.get("source") or "").split()),
    )


def _bare(annotation: Any) -> Any:
    """Unwrap ``Annotated``."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _tag(group: type[BaseModel]) -> str:
    """``{kind=name}`` from the group's required literal field, else its class name."""
    for name, field in group.model_fields.items():
        if get_origin(field.annotation) is Literal and field.is_required():
            values = get_args(field.annotation)
            if len(values) == 1:
                return f"{{{name}={values[0]}}}"
    return f"{{{group.__name__}}}"


def _type_name(annotation: Any) -> str:
    """Name a type as a reader of YAML would."""
    annotation = _bare(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _choices(arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type_name(one) for one in arguments))
    if origin in (list, tuple):
        return f"list of {_type_name(arguments[0])}"
    if origin in (dict, Mapping):
        return f"mapping to {_type_name(arguments[1])}"
    return _plain_name(annotation)


def _plain_name(annotation: Any) -> str:
    if _is_group(annotation):
        return "group"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choices(tuple(member.value for member in annotation))
    name: str = getattr(annotation, "__name__", str(annotation))
    return _PLAIN_NAMES.get(annotation, name)


def _choices(values: tuple[Any, ...]) -> str:
    return " or ".join(_as_yaml(value) for value in values)


def _limit(constraint: Any) -> str:
    """One pydantic constraint in signs; anything else says nothing."""
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    for attribute, sign in signs.items():
        if type(constraint).__name__.lower() == attribute:
            return f"{sign} {getattr(constraint, attribute)}"
    if type(constraint).__name__ == "MinLen":
        return f"at least {constraint.min_length}"
    if type(constraint).__name__ == "MaxLen":
        return f"at most {constraint.max_length}"
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "as below"
    return _as_yaml(to_jsonable_python(value))


def _as_yaml(value: Any) -> str:
    """Write a value as in a YAML file: 1.0e-08 is a number there, 1e-08 a text."""
    style = '"' if isinstance(value, str) and "\n" in value else None  # one line each
    text = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=True, width=10**6
    )
    return f"`{text.strip()[1:-1]}`"


def _first_paragraph(model: type[BaseModel]) -> str:
    # A RootModel without a docstring inherits pydantic's own.
    own = model.__dict__.get("__doc__") or ""
    return " ".join(own.strip().split("\n\n")[0].split())


def _unique(rows: Iterator[_Row]) -> list[_Row]:
    """Rows without repeats, which unions of containers of one group would give."""
    return list(dict.fromkeys(rows))
