"""Interaction with the report in a real browser."""

import base64
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

Open = Callable[..., Any]

PAGES = ("index", "table6", "table6_recall", "runs", "attention", "compare", "single-page")
MOST_BYTES = 3_000_000
WIDTH = "[document.documentElement.scrollWidth, innerWidth]"


def column(page: Any, number: int) -> list[str]:
    texts: list[str] = page.locator(
        f"table[data-section='0'] tbody tr > :nth-child({number})"
    ).all_inner_texts()
    return texts


def each_page(site: Path, names: Sequence[str], page: Any) -> Iterator[tuple[str, Any]]:
    """Go to one page of the report after the other."""
    for name in names:
        page.goto(f"file://{site}/{name}.html")
        yield name, page


def test_a_heading_sorts_its_column(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/table6.html")
    before = column(page, 1)
    heading = page.locator("th", has_text="Valid").first
    number = heading.evaluate("one => one.cellIndex") + 1

    def numbers() -> list[float]:
        return [float(text.split()[0]) for text in column(page, number)]

    unsorted = numbers()
    heading.locator("button").click()
    assert numbers() == sorted(unsorted) and heading.get_attribute("aria-sort") == "ascending"
    heading.locator("button").click()
    assert numbers() == sorted(unsorted, reverse=True)
    heading.locator("button").click()
    assert column(page, 1) == before and heading.get_attribute("aria-sort") is None


def test_a_question_leads_to_its_verdict(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/index.html")
    secondary, questions = page.locator(".board tbody tr"), page.locator(".questions li")
    assert secondary.count() and questions.count()
    for number in range(questions.count()):
        question = questions.nth(number)
        marks = question.locator("svg.sparkline").all()
        assert marks and all(mark.is_visible() for mark in marks)
        text = [question.locator("h3").inner_text(), question.locator(".chip").inner_text()]
        question.locator("a").click()
        verdict = page.locator(".verdicts li:target").inner_text()
        assert all(element in verdict for element in text)
        page.go_back()
    row = secondary.first
    text = [row.locator("a").inner_text(), row.locator(".chip").inner_text()]
    row.locator("a").click()
    verdict = page.locator(".verdicts li:target").inner_text()
    assert all(element in verdict for element in text)


def test_a_cell_opens_to_its_provenance(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/table6.html")
    cell = page.locator("[data-cell='diff/valid']")
    table = page.locator("table.measured").first
    widths = "one => [...one.tHead.rows[0].cells].map(cell => cell.offsetWidth)"
    before = table.evaluate(widths)
    cell.click()
    panel = page.locator("#panel")
    assert panel.is_visible() and table.evaluate(widths) == before
    text = panel.inner_text()
    assert "DIFF: Valid" in text and "95% interval" in text and "published: 3.062" in text
    assert "seed 0" in text and "Commit" not in text
    assert "Settings that differ from other rows" in text and "training.lr" in text
    panel.locator("summary").first.click()
    opened = panel.inner_text()
    assert "0123456789ab" in opened and re.search(
        r"evaluation-diff-validation_slices-0-\w+", opened
    )
    assert panel.locator("a").count() == 0  # from disk there is only the id
    assert "snakemake" in opened and "validation_slices/diff/0.json" in opened
    page.keyboard.press("Escape")
    assert not panel.is_visible()
    assert page.evaluate("document.activeElement.dataset.cell") == "diff/valid"


def test_published_values_are_shown_or_not(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/table6.html")
    published = page.locator(".published").first
    assert published.is_visible()
    page.uncheck(".published-toggle")
    assert not published.is_visible()


def test_everything_works_by_keyboard(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/table6.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("[data-cell='transformer/valid']").focus()
    page.keyboard.press("Enter")
    assert page.locator("#panel").is_visible()
    page.locator(".menu summary").focus()
    page.keyboard.press("Enter")
    assert page.locator(".menu a").first.is_visible()
    page.keyboard.press("Escape")
    assert not page.locator(".menu a").first.is_visible()


@pytest.mark.parametrize(
    "width", [390, 1400, *(pytest.param(width, marks=pytest.mark.slow) for width in (768, 2200))]
)
def test_no_content_overflows_the_page(site: Path, visit: Open, width: int) -> None:
    for name, page in each_page(site, PAGES, visit("about:blank", width=width)):
        wide, seen = page.evaluate(WIDTH)
        assert wide <= seen, name


def test_tables_fit_a_desk(site: Path, visit: Open) -> None:
    for name, page in each_page(site, ("table6", "table6_recall"), visit("about:blank")):
        for wide, seen in page.eval_on_selector_all(
            ".scroll", "found => found.map(one => [one.scrollWidth, one.clientWidth])"
        ):
            assert wide <= seen, name


def test_dark_mode_applies_to_figures_and_charts(site: Path, visit: Open) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = (
        visit(f"file://{site}/table6.html", scheme=element) for element in ("light", "dark")
    )
    assert light.evaluate(ground) != dark.evaluate(ground)
    shots = [page.locator("figure img").screenshot() for page in (light, dark)]
    assert brightness(light, shots[0]) > 0.8 and brightness(dark, shots[1]) < 0.4
    # The button turns the light on again, and the figure with it.
    dark.click("#theme")
    assert dark.evaluate(ground) == light.evaluate(ground)
    assert brightness(dark, dark.locator("figure img").screenshot()) > 0.8


def brightness(page: Any, png: bytes) -> float:
    """Mean brightness of a picture, by the browser itself."""
    mean: float = page.evaluate(
        """async (data) => {
          const image = await createImageBitmap(await (await fetch(data)).blob());
          const canvas = new OffscreenCanvas(image.width, image.height);
          const context = canvas.getContext("2d");
          context.drawImage(image, 0, 0);
          const pixels = context.getImageData(0, 0, image.width, image.height).data;
          let sum = 0;
          for (let place = 0; place < pixels.length; place += 4) sum += pixels[place + 1];
          return sum / (pixels.length / 4) / 255;
        }""",
        f"data:image/png;base64,{base64.b64encode(png).decode()}",
    )
    return mean


def test_curves_of_runs_are_overlaid(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/runs.html")
    assert page.locator("#chart canvas").count() == 1
    heads = page.locator("#run-table thead th").all_inner_texts()
    assert {"Validation loss", "Steps to learn"} < set(heads)
    assert page.locator("#curve option").first.inner_text() == "validation loss"
    page.click("#no-runs")
    assert "Select runs" in page.locator("#chart").inner_text()
    page.fill("#find-run", "recall_diff")
    assert (
        0
        < page.locator("#run-table tbody tr:visible").count()
        < page.locator("#run-table tbody tr").count()
    )
    page.check("input[value='recall_diff']")
    page.check("input[value='recall_diff_lambda_0_8']")
    page.select_option("#curve", "accuracy_n4")
    assert "accuracy n4" in (page.locator("#chart").get_attribute("aria-label") or "")
    drawn = page.evaluate(
        """() => {
          const canvas = document.querySelector("#chart canvas");
          const context = canvas.getContext("2d");
          const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
          for (let place = 0; place < pixels.length; place += 4)
            if (Math.abs(pixels[place] - pixels[place + 2]) > 90) return true;
          return false;
        }"""
    )
    assert drawn  # in color
    differ = page.locator("#settings tbody tr").all_inner_texts()
    assert [row.split() for row in differ] == [["training.lr", "0.004", "0.001"]]


def test_runs_of_one_color_differ_in_chart_and_legend(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/runs.html")
    page.click("#no-runs")
    looks: dict[str, int | None] = page.evaluate(
        "Object.fromEntries(Object.entries(REPORT.runs).map(([name, run]) => [name, run.color]))"
    )
    chosen = ("diff", "transformer_groupnorm", "dint")
    assert [looks[run] for run in chosen] == [1, 22, None]  # blue all three, the last as free
    for run in chosen:
        page.check(f"input[value='{run}']")
    swatches = page.eval_on_selector_all(
        "#chart .u-marker", "found => found.slice(1).map(one => one.style.background)"
    )
    tones = {tone for swatch in swatches for tone in re.findall(r"rgb\([^)]*\)", swatch)}
    assert len(tones) == 1 and len(set(swatches)) == 3


def test_maps_stand_side_by_side(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/attention.html")
    maps = page.locator("#maps [role='img']")
    assert maps.count() == 2
    text = [element.get_attribute("aria-label") for element in maps.all()]
    assert text[0].startswith("DIFF, layer 2, head 1") and "Transformer" in text[1]
    added, taken = (
        maps.first.locator(f"[aria-description='{sign}'] rect") for sign in ("added", "subtracted")
    )
    assert added.count() and taken.count()
    added.first.hover()
    tip = maps.first.locator("[aria-label='tip']")
    tip.locator("text").first.wait_for()
    assert re.search(r" → .*: \d+\.\d{3}", tip.text_content() or "")
    page.select_option("#sign", "-1")
    assert taken.count() and not added.count()
    page.select_option("#sign", "1")
    page.select_option("[aria-label='Head'] >> nth=0", "3")
    assert "head 4" in (maps.first.get_attribute("aria-label") or "")
    assert added.count() and not taken.count()
    assert page.locator("#lambdas tbody tr").count() == 1


def test_two_builds_are_compared(site: Path, visit: Open) -> None:
    page = visit(f"file://{site}/compare.html")
    rows = page.locator("tr[data-verdict]:visible")
    everything = rows.count()
    page.click("button.chip[data-verdict='beyond noise']")
    beyond = rows.count()
    assert 0 < beyond < everything
    assert page.locator("#shown").inner_text().startswith(f"{beyond} cell")
    assert {element.inner_text() for element in rows.locator("th").all()} == {"DIFF"}
    page.click("button.chip[data-verdict='beyond noise']")
    page.locator("button.sort", has_text="B − A").click()
    values = [
        float(element.get_attribute("data-value") or "nan")
        for element in page.locator("tbody >> nth=0").locator("td[data-value]").all()
    ]
    assert values == sorted(values) and len(values) > 2


def test_the_site_stays_small(site: Path) -> None:
    sizes = {path: path.stat().st_size for path in site.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < MOST_BYTES
    # Twice in it, beside them and in the one page, they leave the data and figures their room.
    assert sum(size for path, size in sizes.items() if path.parent.name == "assets") < 400_000


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_serious(site: Path, visit: Open, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    names = PAGES if scheme == "dark" else PAGES[:-1]  # the last has all of them again
    for name, page in each_page(site, names, visit("about:blank", scheme=scheme)):
        if name == "table6":
            page.click("[data-cell='diff/valid']")
        violations = Axe().run(page, options={"preload": False}).response["violations"]
        serious = [
            (violation["id"], [node["html"][:150] for node in violation["nodes"][:3]])
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]
        assert not serious, (name, serious)


def test_the_single_page_works_without_other_files(site: Path, visit: Open, tmp_path: Path) -> None:
    shutil.copy(site / "single-page.html", tmp_path)
    page = visit(f"file://{tmp_path}/single-page.html")
    page.click(".board a >> nth=0")
    page.click("[data-cell='recall_diff/heads'] >> nth=0")
    assert page.locator("#panel").is_visible()
    assert page.locator("#chart canvas").count() == 1
    assert page.locator("figure img").first.evaluate("one => one.naturalWidth") > 100


def test_pages_paint_within_a_second(site: Path, visit: Open) -> None:
    first = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    for name in PAGES:
        times = []
        for _ in range(3):
            page = visit(f"file://{site}/{name}.html")
            page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
            times.append(page.evaluate(first))
            if times[-1] < 1000:
                break
        assert min(times) < 1000, (name, times)
