"""A report of six hundred trainings: it opens in two seconds, and two hundred runs stay smooth."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_results import FakeResults
from fake_site import build_site

Open = Callable[..., Any]
RUNS, SEEDS = 200, 3
READY = "performance.getEntriesByType('navigation')[0].loadEventEnd"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fake = FakeResults(tmp_path_factory.mktemp("crowd") / "tiny")
    for row in ("transformer", "diff"):
        for number in range(RUNS // 2):
            for seed in range(SEEDS):
                run = f"{row}_size_{16 + number}"
                fake.history(run, seed, points(number + seed))
                fake.training(run, seed, {"validation_loss": 3.0 + number / RUNS})
    return build_site(fake, fake.root, []).parent


def points(start: int) -> list[dict[str, float | None]]:
    return [
        {"step": step, "loss": 5 - step / 400 + start / 300, "grad_norm": 1.0, "accuracy_n4": 0.5,
         "validation_loss": 5 - step / 400 if step % 100 == 0 else None}
        for step in range(5, 801, 5)
    ]  # fmt: skip


def test_two_hundred_runs_stay_smooth(crowded: Path, visit: Open) -> None:
    page = visit(f"file://{crowded}/runs.html")
    page.wait_for_function(f"{READY} > 0")
    assert page.evaluate(READY) < 2000
    assert page.locator("#run-table tbody tr").count() == RUNS
    took = page.evaluate(
        """() => {
          const start = performance.now();
          const boxes = [...document.querySelectorAll("#run-table input")];
          for (const box of boxes.slice(2, 22)) box.click();
          document.querySelectorAll("#run-table .sort")[4].click();
          return performance.now() - start;
        }"""
    )
    assert took / 20 < 100, took  # milliseconds a click, with up to 22 curves to draw anew
    wide, seen = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= seen


def test_the_single_page_of_two_hundred_runs_opens_in_two_seconds(
    crowded: Path, visit: Open
) -> None:
    page = visit(f"file://{crowded}/single-page.html")
    page.wait_for_function(f"{READY} > 0")
    assert page.evaluate(READY) < 2000
