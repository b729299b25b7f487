"""Sphinx builds the site from these Markdown files: `make docs`, without network."""

import runpy
from pathlib import Path
from typing import Any

project = "difftransformer"
copyright = "the difftransformer maintainers, MIT license"
extensions = ["myst_parser"]
exclude_patterns = ["_site", "static"]
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
highlight_language = "none"  # a block without a name is a shell's, or a picture of folders
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
suppress_warnings = ["config.cache"]

DOCS = Path(__file__).parent
SIDEBAR = {
    "First steps": "start results targets report reproducing verdicts surprises",
    "The papers": "papers/v1 papers/v2 papers/dex",
    "Layers and models": "layers variants api examples sharing dex",
    "Adding things": "adding adding_a_variant adding_an_evaluation settings",
    "Running elsewhere": "gpu tracking cluster distributed security",
    "Inside": "packages",
}
"""Captions and pages of the site's sidebar."""
# Links to config/README.md lead, on the site, to the page of all settings.
settings_page = runpy.run_path(str(DOCS / "settings_page.py"))["settings_page"]
(DOCS / "settings.md").write_text(settings_page(), "utf-8")


def adapt_page(app: Any, page: str, source: list[str]) -> None:
    """Turn what a forge shows into what Sphinx builds: the sidebar, links out of this folder."""
    depth = page.count("/")
    source[0] = source[0].replace(
        "../" * (depth + 1) + "config/README.md", "../" * depth + "settings.md"
    )
    if page == "index":
        for caption, pages in SIDEBAR.items():
            lines = [
                "",
                "```{toctree}",
                f":caption: {caption}",
                ":hidden:",
                "",
                *pages.split(),
                "```",
            ]
            source[0] += "\n".join([*lines, ""])


def level_headings(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give the captions of the sidebar the level without which they are no headings to a reader."""
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace(
            'role="heading"', 'role="heading" aria-level="2"'
        )


def setup(app: Any) -> None:
    """Level the headings after the theme, which makes the sidebar at the same event."""
    app.connect("source-read", adapt_page)
    app.connect("html-page-context", level_headings, priority=900)
