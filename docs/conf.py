"""Sphinx builds the site from these Markdown files: `make docs`, without network."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from pages import write_pages

project = "difftransformer"
copyright = "the difftransformer maintainers, MIT licence"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_site", "generated", "static"]
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
highlight_language = "none"  # a block without a name is a shell's, or a picture of folders
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
nitpick_ignore_regex = [
    # Names in docstrings of what autodoc does not show, and of other packages.
    ("py:.*", r"(torch|nn|collections|Tensor|Self|Any|AttentionConfig|Cache|Rope|Path|pathlib).*"),
    ("py:.*", r"difftransformer\..*"),
    ("py:.*", r"(optional|callable|pd|pandas|transformers|DataFrame|dict|bool|str|int|float).*"),
    ("py:exc", r"\w+Error"),
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_use_rtype = False
suppress_warnings = ["config.cache"]
write_pages(Path(__file__).parent)


def level_headings(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give the captions of the sidebar the level without which they are no headings to a reader."""
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace(
            'role="heading"', 'role="heading" aria-level="2"'
        )


def setup(app: Any) -> None:
    """Come after the theme, which makes the sidebar at the same event."""
    app.connect("html-page-context", level_headings, priority=900)
