"""A real browser on a site of made-up results; nothing that it asks for may leave the machine."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_dex import sentences
from fake_results import SHAPES, FakeResults
from fake_site import build_site

INSTALL = "the browser tests need Chromium: apt-get install chromium (or set CHROMIUM to its path)"
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run",
)  # fmt: skip
Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; skipped where it is not installed."""
    api = pytest.importorskip("playwright.sync_api", reason="make install brings playwright")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chrome")
    if program is None:
        pytest.skip(INSTALL)
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=[*QUIET])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Open]:
    """Opens an address at a width and in a scheme; at the end nothing was wrong on any page."""
    wrong: list[str] = []
    contexts = []

    def open_page(address: str, *, width: int = 1400, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)

        def ask(route: Any) -> None:
            if route.request.url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")):
                route.continue_()
            else:
                wrong.append(f"asked for {route.request.url}")
                route.abort()

        context.route("**/*", ask)
        page = context.new_page()
        page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> FakeResults:
    """Language models and models of retrieval, three seeds each."""
    fake = FakeResults(tmp_path_factory.mktemp("results") / "tiny")
    for row in SHAPES:
        for seed in (0, 1, 2):
            fake.language_model(row, seed)
            fake.recall_model(f"recall_{row}", seed)
            if row in ("transformer", "diff"):
                sentences(fake, row, seed)
    return fake


@pytest.fixture(scope="session")
def site(made: FakeResults) -> Path:
    """Folder of the report on them."""
    tables = ["table6", "table6_recall", "dex_figure4"]
    return build_site(made, made.root, tables, ["table6"]).parent
