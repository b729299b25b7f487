"""A real browser on a site of synthetic results, without network access."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_configs import resolved_artifact
from fake_dex import sentences
from fake_results import SHAPES, FakeResults
from fake_site import build_site

from difftransformer.reporting.comparison import write_comparison
from difftransformer.reporting.table_job import build_table

INSTALL = "the browser tests need Chromium: apt-get install chromium (or set CHROMIUM to its path)"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
    "--disable-component-update", "--no-first-run",
)  # fmt: skip
Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; skipped where it is not installed."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(INSTALL)
    with sync_playwright() as playwright:
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
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
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
    return _results(tmp_path_factory.mktemp("results") / "tiny")


def _results(folder: Path) -> FakeResults:
    fake = FakeResults(folder)
    for row in SHAPES:
        for seed in (0, 1, 2):
            fake.language_model(row, seed)
            fake.recall_model(f"recall_{row}", seed)
            if row in ("transformer", "diff"):
                sentences(fake, row, seed)
    for path in fake.results[:]:  # two runs have a setting of their own
        content = json.loads(path.read_text())
        if content["kind"] == "training" and content["run"] in ("diff", "recall_diff_lambda_0_8"):
            fake.training(content["run"], content["seed"], content["metrics"], lr=1e-3)
    return fake


@pytest.fixture(scope="session")
def site(made: FakeResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the report on them, with a comparison to a build whose DIFF lost something."""
    tables = ["table6", "table6_recall", "dex_figure4", "evidence", "recall_evidence"]
    folder = build_site(made, made.root, tables, ["table6"]).parent
    other = _results(tmp_path_factory.mktemp("other") / "tiny")
    for path in other.results[:]:
        content = json.loads(path.read_text())
        if content["run"] == "diff" and content["suite"] == "validation_slices":
            content["metrics"]["loss"] += 0.5
            seed, suite, metrics = content["seed"], content["suite"], content["metrics"]
            other.write(path, "evaluation", "diff", seed, suite, metrics, content["settings"])
    build_table(resolved_artifact("table6"), set(other.results), other.root / "tables" / "table6")
    write_comparison(made.root, other.root, folder / "compare.html")
    return folder
