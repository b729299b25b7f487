"""The page of every setting, written by `make docs` from the JSON schemas of the typed settings."""

from collections.abc import Iterator
from inspect import get_annotations
from typing import Any

import yaml
from pydantic import TypeAdapter

from difftransformer.config.artifacts import ArtifactConfig
from difftransformer.config.evaluations import evaluation, evaluations
from difftransformer.config.known_keys import Schema, branches, inner, referred
from difftransformer.config.papers import PapersFile
from difftransformer.config.project import ProjectConfig, RunsFile
from difftransformer.config.registry import Registry
from difftransformer.config.run import RunSettings
from difftransformer.config.scale import ScaleConfig
from difftransformer.models.attention.registry import attention_class, variants
from difftransformer.planning.schemas import DatasetsFile
from difftransformer.training.methods import methods, settings_class

OPENING = """# Every setting

Keys of the YAML files in `config/`, by dotted path. `<name>` is a name of your own, `[]` an item of
a list, and `{kind=...}` one of several groups.
"""
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


def settings_page() -> str:
    """Return the page: a section for each file, kind of suite, variant and method."""
    found = [evaluation(name) for name in evaluations()]
    sections: dict[str, type] = {
        "`config.yaml`": ProjectConfig,
        "`runs.yaml`": RunsFile,
        "`runs.yaml`: `overrides`, and recipes of a scale": RunSettings,
        "`artifacts/*.yaml`": ArtifactConfig,
        **{f"`options` of evaluation `{one.name}`": one.options for one in found},
        **{f"`evaluations.yaml`: suite of kind `{x.name}`": x.suite for x in found if x.suite},
        "`datasets.yaml`": DatasetsFile,
        "`scales/*.yaml`": ScaleConfig,
        **{f"`timings` of evaluation `{x.name}`": x.timing for x in found if x.timing},
        "`papers.yaml`": PapersFile,
        "`registry.yaml`": Registry,
        **{f"`model.attention` with variant `{x}`": attention_class(x).config_class
           for x in variants()},
        **{f"`adapt` with method `{name}`": settings_class(name) for name in methods()},
    }  # fmt: skip
    items = {heading: "\n".join(settings_of(kind)) for heading, kind in sections.items()}
    return "\n".join([OPENING, *(f"## {heading}\n\n{x}\n" for heading, x in items.items() if x)])


def settings_of(kind: type) -> list[str]:
    """Return an item for each setting of a file or group, its own before those it inherits."""
    schema, own = TypeAdapter(kind).json_schema(), get_annotations(kind)
    ordered = sorted(schema["properties"].items(), key=lambda item: item[0] not in own)
    # Unions of containers of one group would repeat its settings.
    return [*dict.fromkeys(_group(schema | {"properties": dict(ordered)}, schema, ""))]


def _group(group: Schema, schema: Schema, prefix: str) -> Iterator[str]:
    for name, field in group["properties"].items():
        path = f"{prefix}.{name}" if prefix else name
        yield _item(path, field, schema, required=name in group.get("required", ()))
        yield from _nested(path, field, schema)


def _nested(path: str, field: Schema, schema: Schema) -> Iterator[str]:
    """Settings of the groups that a field can hold, if any."""
    choices = list(branches(field, schema))
    groups = [one for one in choices if "properties" in one]
    for one in choices:
        if one in groups:
            yield from _group(one, schema, path + (_tag(one) if len(groups) > 1 else ""))
        elif "items" in one:
            yield from _nested(f"{path}[]", one["items"], schema)
        elif one.get("type") == "object":
            yield from _nested(f"{path}.<name>", inner(one, "<name>") or {}, schema)


def _item(path: str, field: Schema, schema: Schema, *, required: bool) -> str:
    """One setting with its type, limits, unit, default, meaning and source."""
    limits = [
        f"{sign} {one[limit]}"
        for one in branches(field, schema)
        if "prefixItems" not in one  # as many as there are
        for limit, sign in _LIMITS.items()
        if limit in one
    ]
    kind = _type_name(field) + (f" ({', '.join(limits)})" if limits else "")
    group = referred(field, schema)
    default = "as below" if group else _as_yaml(field.get("default"))
    about = [kind, field.get("unit"), "required" if required else f"default {default}"]
    # A field that says the same of itself as its group leaves it out.
    meaning = " ".join((field.get("description") or group.get("description", "")).split())
    source = f" *Source: {' '.join(field['source'].split())}.*" if "source" in field else ""
    return f"- `{path}` ({', '.join(filter(None, about))}): {meaning.removesuffix('.')}.{source}"


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
            return f"mapping to {_type_name(inner(field, '<name>') or {})}"
    kind: str = "group" if "$ref" in field else field.get("type", "any")
    return _PLAIN_NAMES.get(kind, kind)


def _as_yaml(value: Any) -> str:
    """Write a value as in a YAML file: 1.0e-08 is a number there, 1e-08 a text."""
    style = '"' if isinstance(value, str) and "\n" in value else None  # one line each
    text = yaml.safe_dump(
        [value], default_flow_style=True, default_style=style, allow_unicode=True, width=10**6
    )
    return f"`{text.strip()[1:-1]}`"
