"""Pages that are made from what the package knows itself: variants, verdict words, rooms."""

import sys
from importlib import import_module
from inspect import getdoc
from pathlib import Path

import yaml

from difftransformer.config.model import AttentionConfig
from difftransformer.models.attention.registry import attention_class, interpretation, variants

GENERATED = "generated"


def write_pages(docs: Path) -> None:
    """Write what the site includes, below ``docs/generated``."""
    folder = docs / GENERATED
    folder.mkdir(exist_ok=True)
    made = {
        "variants.inc": variants_page(),
        "artifacts.inc": artifacts_page(docs.parent / "config" / "artifacts"),
    }
    for name, text in made.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def variants_page() -> str:
    """Each layer of the registry: its formula as its file has it, its settings, what is ours."""
    return "\n\n".join(map(_variant, variants())) + "\n"


def artifacts_page(folder: Path) -> str:
    """Each table and figure of a configuration: what it shows, how that is measured, its claims."""
    lines = []
    for path in sorted(folder.glob("*.yaml")):
        artifact = yaml.safe_load(path.read_text(encoding="utf-8"))
        parts = [f"**{artifact['title'].rstrip('.')}.**", artifact["description"]]
        if caption := (artifact.get("table") or {}).get("caption"):
            parts.append(caption)
        if claims := artifact.get("claims"):
            parts.append(f"Claims: {', '.join(claims)}")
        sentences = (" ".join(part.split()) for part in parts)
        said = " ".join(one if one[-1] in ".?*" else f"{one}." for one in sentences)
        lines.append(f"- `{path.stem}`: {said}")
    return "\n".join(lines) + "\n"


def _variant(name: str) -> str:
    kind = attention_class(name)
    module = import_module(kind.__module__)
    parts = [
        f"## {kind.__name__}",
        f"`from difftransformer import {kind.__name__}`, in runs `variant: {name}`",
    ]
    if (ours := interpretation(name)) is not None:
        parts.append(f"*An interpretation*: {ours}.")
    parts += [_verbatim(getdoc(module) or ""), _verbatim(getdoc(kind) or "")]
    own = {
        key: field
        for key, field in kind.config_class.model_fields.items()
        if key not in AttentionConfig.model_fields
    }
    if own:
        rows = [
            f"| `{key}` | `{field.get_default()}` | {_cell(field.description or '')} |"
            for key, field in own.items()
        ]
        parts.append("\n".join(["| setting | default | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _verbatim(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def rooms_dot() -> str:
    """The rooms of the package and who imports whom, as a graph for `dot`.

    Only imports at the top or inside functions of the package itself count, without those that
    can be reached by way of another room.
    """
    import grimp

    graph = grimp.build_graph("difftransformer", cache_dir=None)
    rooms = sorted(graph.find_children("difftransformer"))
    edges = {
        (room, other)
        for room in rooms
        for other in rooms
        if room != other
        and graph.direct_import_exists(importer=room, imported=other, as_packages=True)
    }
    shown = [edge for edge in sorted(edges) if not _by_way(edge, edges)]
    names = [f'  "{_room(room)}"' for room in rooms]
    arrows = [f'  "{_room(a)}" -> "{_room(b)}"' for a, b in shown]
    look = [
        "  rankdir=TB; bgcolor=transparent",
        '  node [shape=box, style="rounded,filled", fillcolor="#eef2f7", color="#5b6b7f", '
        'fontname="sans-serif", fontsize=12]',
        '  edge [color="#5b6b7f", arrowsize=0.7]',
    ]
    return "\n".join(["digraph rooms {", *look, *names, *arrows, "}"]) + "\n"


def _by_way(edge: tuple[str, str], edges: set[tuple[str, str]]) -> bool:
    """Whether a longer way leads there as well."""
    start, end = edge
    seen, waiting = {start}, [b for a, b in edges if a == start and b != end]
    while waiting:
        room = waiting.pop()
        if room == end:
            return True
        if room not in seen:
            seen.add(room)
            waiting += [b for a, b in edges if a == room]
    return False


def _room(name: str) -> str:
    return name.rpartition(".")[2]


if __name__ == "__main__":
    sys.stdout.write(rooms_dot())
