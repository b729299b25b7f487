"""Screenshots of the report for the docs: `make pictures`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("REPORT_PICTURES")
"""Where they go; without it nothing is drawn."""
pytestmark = pytest.mark.skipif(FOLDER is None, reason="draws pictures for the docs: make pictures")
Open = Callable[..., Any]


@pytest.fixture
def report() -> Path:
    scale = os.environ.get("REPORT_SCALE", "tiny")
    folder = Path(__file__).parents[2] / "results" / scale / "report"
    assert (folder / "index.html").is_file(), f"{folder}: build the report first"
    return folder


def test_the_front(report: Path, visit: Open) -> None:
    page = visit(f"file://{report}/index.html", width=1200)
    page.screenshot(path=f"{FOLDER}/report_front.png")


def test_a_page_with_an_open_cell(report: Path, visit: Open) -> None:
    page = visit(f"file://{report}/index.html", width=1200)
    page.goto(page.locator(".board tbody a").first.evaluate("one => one.href"))
    page.locator("tbody tr").first.locator("button.cell").last.click()  # the first ones are sizes
    page.evaluate("scrollTo(0, 0)")
    assert page.locator("#panel").is_visible()
    page.screenshot(path=f"{FOLDER}/report_page.png")


def test_maps_of_one_prompt(report: Path, visit: Open) -> None:
    page = visit(f"file://{report}/attention.html", width=1200)
    assert page.locator("svg.heat rect").count() > 100
    page.screenshot(path=f"{FOLDER}/report_attention.png")


def test_curves_of_runs_in_the_dark(report: Path, visit: Open) -> None:
    page = visit(f"file://{report}/runs.html", width=1200, scheme="dark")
    assert page.locator("#chart canvas").count() == 1
    page.screenshot(path=f"{FOLDER}/report_runs.png")
