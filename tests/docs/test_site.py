"""The documentation site: built without warnings or network, with no dead link."""

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "--quiet", "--fail-on-warning", "-b", "html", "-d", f"{out}/.doctrees"]
    unreachable = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    ended = subprocess.run(
        [sys.executable, *words, str(repository / "docs"), str(out)],
        env={**os.environ, **unreachable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return out


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors |= {name for name in (attributes.get("id"), attributes.get("name")) if name}
        if tag == "a" and (target := attributes.get("href")):
            self.targets.append(target)
        if tag in ("script", "img") and (source := attributes.get("src")):
            self.loaded.append(source)
        if (
            tag == "link"
            and attributes.get("rel") in ("stylesheet", "icon")
            and attributes.get("href")
        ):
            self.loaded.append(str(attributes["href"]))


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: Links() for page in site.rglob("*.html")}
    for page, links in pages.items():
        links.feed(page.read_text(encoding="utf-8"))
    assert len(pages) > 15
    dead = []
    for page, links in pages.items():
        for target in links.targets + links.loaded:
            if re.match(r"(https?|mailto):", target):
                assert target not in links.loaded, (page, target)
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not file.is_file() or (
                anchor and file in pages and anchor not in pages[file].anchors
            ):
                dead.append((page.name, target))
    assert dead == []


def test_links_of_other_pages_lead_somewhere(repository: Path) -> None:
    folders = (repository, *(repository / name for name in ("benchmarks", "examples", "config")))
    pages = [page for folder in folders for page in sorted(folder.glob("*.md"))]
    assert {"README.md", "CONTRIBUTING.md", "LICENSES.md"} <= {page.name for page in pages}
    for page in [*pages, *sorted(repository.glob("benchmarks/*/*.md"))]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            there = target.startswith("http") or (page.parent / target).exists()
            assert there, f"{page.name}: {target}"


def test_no_markdown_page_has_a_sphinx_directive(repository: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=repository, capture_output=True, text=True, check=True
    )
    raw = re.compile(r"^(```|~~~|:::+)\{|\{(doc|ref|py:\w+|eval-rst)\}`", re.MULTILINE)
    pages = listed.stdout.split()
    assert "docs/layers.md" in pages
    assert [page for page in pages if raw.search((repository / page).read_text("utf-8"))] == []


def test_every_variant_has_its_formula_on_the_page(site: Path) -> None:
    from difftransformer.models.layers import layer_names

    page = (site / "variants.html").read_text(encoding="utf-8")
    for name in layer_names():
        assert f">{name}<" in page
    assert "eq. 3   Y = concat" in page


@pytest.mark.parametrize("name", ["variants.md", "api.md", "targets.md", "packages.dot"])
def test_generated_pages_follow_the_code(name: str, repository: Path) -> None:
    pages = runpy.run_path(str(repository / "docs" / "pages.py"))["generated_pages"]()
    assert (repository / "docs" / name).read_text("utf-8") == pages[name], "stale: run `make docs`"
