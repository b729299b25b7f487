"""Write the pages that follow from the code: variants, API, targets, the graph of the packages.

They are committed, so that every page reads as it is on a forge; `make docs` writes them again.
"""

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from inspect import getdoc
from pathlib import Path

import yaml

import difftransformer
from difftransformer.models.attention.registry import (
    attention_class,
    deviation_from_paper,
    variants,
)
from difftransformer.models.config import AttentionConfig

DOCS = Path(__file__).parent
API: dict[str, tuple[str, ...]] = {
    "AttentionLayer": ("forward", "attention_maps", "reset_parameters"),
    "KeyValueCache": ("update", "get_seq_length"),
    "unilm_state_dict": (),
    "load_unilm_state_dict": (),
    "DiffTransformerConfig": ("model_config",),
    "DiffTransformerForCausalLM": ("forward",),
    "register": (),
    "results": (),
}
"""What `import difftransformer` offers beside the variants, and the methods that users call."""


def generated_pages() -> dict[str, str]:
    """Return the text of each generated file in this folder by its name."""
    return {
        "variants.md": variants_page(),
        "api.md": api_page(),
        "targets.md": targets_page(DOCS.parent / "config" / "artifacts"),
        "packages.dot": packages_dot(),
    }


def api_page() -> str:
    """Each public class and function with its signature and docstring."""
    head = (
        "# API of the layers and models\n\n"
        "Generated from the docstrings. Every variant has the methods of `AttentionLayer`; "
        "their own settings are in [The variants](variants.md)."
    )
    return "\n\n".join([head, *(_api_entry(name, API[name]) for name in API)]) + "\n"


def _api_entry(name: str, methods: tuple[str, ...]) -> str:
    thing = getattr(difftransformer, name)
    parts = [f"## {name}", _signature(name, thing), _verbatim(getdoc(thing) or "")]
    for method in methods:
        function = getattr(thing, method)
        parts += [f"### {name}.{method}", _signature(method, function)]
        parts.append(_verbatim(getdoc(function) or ""))
    return "\n\n".join(parts)


def _signature(name: str, thing: Callable[..., object]) -> str:
    parameters = [
        one.replace(annotation=one.empty)
        for one in inspect.signature(thing).parameters.values()
        if one.name != "self"
    ]
    text = f"{name}{inspect.Signature(parameters)}"
    wrapped = textwrap.wrap(text, 96, subsequent_indent="    ", break_long_words=False)
    return "\n".join(["```text", *wrapped, "```"])


def variants_page() -> str:
    """Each variant of the registry: its equations as its file has them, and its own settings."""
    head = (
        "# The variants\n\n"
        "Equations and settings as in the variants' own files. Shapes: B sequences, T queries, "
        "S keys, D = d_model,\nH output heads, G key/value heads, d = head_dim."
    )
    return "\n\n".join([head, *map(_variant, variants())]) + "\n"


def targets_page(folder: Path) -> str:
    """Each table and figure: what it shows, how that is measured, the questions it answers."""
    registry = yaml.safe_load((folder.parent / "registry.yaml").read_text(encoding="utf-8"))
    parts = [
        "# Every target in detail",
        "From the files in `config/artifacts`: what is shown, how it is measured, and the "
        "registered questions that it answers.\n"
        "The overview is in [What each result means](results.md).",
    ]
    for path in sorted(folder.glob("*.yaml")):
        artifact = yaml.safe_load(path.read_text(encoding="utf-8"))
        parts += [f"## {path.stem}", f"**{artifact['title'].rstrip('.')}**"]
        texts = (artifact["description"], (artifact.get("table") or {}).get("caption"))
        sentences = [" ".join(text.split()) for text in texts if text]
        parts.append(" ".join(one if one[-1] in ".?" else f"{one}." for one in sentences))
        parts += [
            f"{claim['question']} ({name})"
            for name, claim in registry["claims"].items()
            if claim["artifact"] == path.stem
        ]
    return "\n\n".join(parts) + "\n"


def _variant(name: str) -> str:
    kind = attention_class(name)
    module = import_module(kind.__module__)
    parts = [
        f"## {kind.__name__}",
        f"`from difftransformer import {kind.__name__}`, in runs `variant: {name}`",
    ]
    if (deviation := deviation_from_paper(name)) is not None:
        parts.append(f"*Deviation from the paper*: {deviation}.")
    parts += [_verbatim(getdoc(module) or ""), _verbatim(getdoc(kind) or "")]
    own = {
        field.name: field
        for field in fields(kind.config_class)
        if field.name not in AttentionConfig.names()
    }
    if own:
        rows = [
            f"| `{key}` | `{field.default}` | {_cell(field.metadata['description'])} |"
            for key, field in own.items()
        ]
        parts.append("\n".join(["| setting | default | |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _verbatim(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def packages_dot() -> str:
    """The packages of the package and who imports whom, as a graph for `dot`.

    Only imports at the top or inside functions of the package itself count, without those that
    can be reached by way of another package.
    """
    import grimp

    graph = grimp.build_graph("difftransformer", cache_dir=None)
    packages = sorted(graph.find_children("difftransformer"))
    edges = {
        (package, other)
        for package in packages
        for other in packages
        if package != other
        and graph.direct_import_exists(importer=package, imported=other, as_packages=True)
    }
    shown = [edge for edge in sorted(edges) if not _by_way(edge, edges)]
    names = [f'  "{_package(package)}"' for package in packages]
    arrows = [f'  "{_package(a)}" -> "{_package(b)}"' for a, b in shown]
    look = [
        "  rankdir=TB; bgcolor=transparent",
        '  node [shape=box, style="rounded,filled", fillcolor="#eef2f7", color="#5b6b7f", '
        'fontname="sans-serif", fontsize=12]',
        '  edge [color="#5b6b7f", arrowsize=0.7]',
    ]
    return "\n".join(["digraph packages {", *look, *names, *arrows, "}"]) + "\n"


def _by_way(edge: tuple[str, str], edges: set[tuple[str, str]]) -> bool:
    """Whether a longer way leads there as well."""
    start, end = edge
    seen, waiting = {start}, [b for a, b in edges if a == start and b != end]
    while waiting:
        package = waiting.pop()
        if package == end:
            return True
        if package not in seen:
            seen.add(package)
            waiting += [b for a, b in edges if a == package]
    return False


def _package(name: str) -> str:
    return name.rpartition(".")[2]


if __name__ == "__main__":
    for name, text in generated_pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
