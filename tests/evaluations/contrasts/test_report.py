"""Contrasts in the table, computed by hand, and in the figure beside published replications."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from answers import claims_on, verdicts_of
from fake_configs import RESOLVER, SCALE, resolved_artifact
from fake_results import FakeResults
from pictures import picture, picture_of
from scipy import stats

from difftransformer.provenance.result import PerItemScores, RatioTerm
from difftransformer.reporting.collect import Results, load_results
from difftransformer.reporting.document import TableDocument
from difftransformer.reporting.table_job import make_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

ROWS = ("transformer", "transformer_halved_heads_groupnorm", "diff", "diff_lambda_0")
DOCUMENTS, TOKENS = 40, np.random.default_rng(0).integers(50, 400, 40)
FIRST = "diff_minus_transformer_halved_heads_groupnorm"


def losses(fake: FakeResults, spread: float = 0.05) -> tuple[Results, dict[str, np.ndarray]]:
    """Results whose losses are of documents, summed by seed and document: row -> [S, D]."""
    random = np.random.default_rng(1)
    shared = random.normal(4, 0.5, DOCUMENTS)
    sums_by_row = {
        row: (3 - index / 100 + shared + random.normal(0, spread, DOCUMENTS)) * TOKENS
        + random.normal(0, 3, (3, DOCUMENTS))
        for index, row in enumerate(ROWS)
    }
    results = load_results(fake.results, SCALE)
    evaluations = dict(results.evaluations)
    for row, sums in sums_by_row.items():
        for seed, line in enumerate(sums):
            term = RatioTerm(values=line.tolist(), weights=TOKENS.tolist(), item_set="text")
            key = ("validation_slices", row, seed)
            result = results.evaluation(*key)
            update = {
                "metrics": result.metrics | {"loss": line.sum() / TOKENS.sum()},
                "per_item": {"loss": PerItemScores(item_type="documents", terms=[term])},
            }
            evaluations[key] = result.model_copy(update=update)
    return replace(results, evaluations=evaluations), sums_by_row


def by_hand(seeds: np.ndarray, sums: np.ndarray) -> tuple[float, float]:
    """Half the interval over seeds, and over seeds and documents, by docs/verdicts.md."""
    n, number = len(seeds), len(TOKENS)
    a = seeds.var(ddof=1) / n
    parts = (sums - seeds[:, None] * TOKENS) / TOKENS.sum()
    b = number / (number - 1) * (parts.mean(0) ** 2).sum()
    c = number / (number - 1) * ((parts - parts.mean(0)) ** 2).sum() / (n * (n - 1))
    u = max(0.0, b - c)
    freedom = max(n - 1, (a + u) ** 2 / (a**2 * (n + 1) / (n - 1) ** 2 + u**2 / (number - 1)))
    alone = stats.t.ppf(0.975, n - 1) * np.sqrt(a)
    return alone, stats.t.ppf(0.975, freedom) * np.sqrt(a + u)


def made(results: Results, seeds: tuple[int, ...] = (0, 1, 2)) -> TableDocument:
    return make_table(resolved_artifact("evidence", seeds=seeds), results)


def test_intervals_cover_seeds_and_documents_as_in_verdicts(fake: FakeResults) -> None:
    results, sums_by_row = losses(fake)
    table = made(results)
    for row, sums in sums_by_row.items():
        cell, seeds = table.find(row, "valid"), sums.sum(1) / TOKENS.sum()
        assert cell is not None and cell.value == pytest.approx(seeds.mean())
        alone, with_items = by_hand(seeds, sums)
        assert cell.ci_high == pytest.approx(seeds.mean() + with_items) and with_items != alone
    tested = {
        (contrast.row, contrast.baseline): contrast
        for verdict in verdicts_of(claims_on("evidence"), results).values()
        for contrast in verdict.contrasts
    }
    (part, *_) = resolved_artifact("evidence").sections
    pairs = [(contrast.row, contrast.baseline) for contrast in part.options.pairs]
    assert len(pairs) == 4 and len(tested) == 3
    for ours, theirs in pairs:
        cell = table.find(f"{ours}_minus_{theirs}", "valid_difference")
        sums = sums_by_row[ours] - sums_by_row[theirs]
        seeds = sums.sum(1) / TOKENS.sum()
        _, with_items = by_hand(seeds, sums)
        assert cell is not None and cell.value == pytest.approx(seeds.mean())
        assert cell.std == pytest.approx(seeds.std(ddof=1)) and cell.n == 3
        assert cell.ci_low == pytest.approx(seeds.mean() - with_items)
        if (ours, theirs) in tested:
            contrast = tested[ours, theirs]
            assert (cell.ci_low, cell.ci_high) == (contrast.ci_low, contrast.ci_high)
        half = table.find(cell.row, "half_width")
        assert half is not None and half.value == pytest.approx(with_items)
        assert len(cell.job_ids()) == len(half.job_ids()) == 6


def test_published_differences_stand_beside_ours(fake: FakeResults) -> None:
    table = made(load_results(fake.results, SCALE))
    first = table.find(FIRST, "valid_difference")
    other = table.find("diff_minus_diff_lambda_0", "valid_difference")
    assert first is not None and first.paper_value == pytest.approx(3.062 - 3.086)
    assert other is not None and other.paper_value is None


def test_replications_have_the_numbers_they_print(fake: FakeResults) -> None:
    *_, section = made(load_results(fake.results, SCALE)).sections
    published = RESOLVER.papers.replications
    assert [row.label for row in section.rows] == [replication.study for replication in published]
    assert all(cell.value is None and not cell.seeds for cell in section.cells)
    texts = {row.label: section.cell(row.run, "difference") for row in section.rows}
    for replication in published:
        cell = texts[replication.study]
        assert cell is not None
        expected = (
            "–"
            if replication.difference is None
            else f"{replication.difference:+.3f}".replace("-", "−")
        )
        assert cell.text == expected
        assert any(replication.source in note for note in section.notes)


def test_one_seed_has_no_interval(fake: FakeResults) -> None:
    table = made(load_results(fake.results, SCALE), (0,))
    cell = table.find(FIRST, "valid_difference")
    assert cell is not None and cell.value is not None and cell.ci_low is None
    interval = table.find(FIRST, "interval")
    assert interval is not None and interval.text == "n/a"
    assert any("no interval" in note for note in table.notes)


# --- the picture


def lines_of(figure: "Figure") -> dict[str, int]:
    """Label -> its place."""
    axes = figure.axes[0]
    return {text.get_text(): y for y, text in enumerate(axes.get_yticklabels())}


def drawn_at(line: "Line2D") -> list[float]:
    """Where a line has data."""
    data = zip(line.get_xdata(), line.get_ydata(), strict=True)
    return [float(x) for x, y in data if np.isfinite([x, y]).all()]


def marks(axes: "Axes", y_line: int) -> dict[float, bool]:
    """Means on a line, and whether they are hollow."""
    return {
        float(x): line.get_markerfacecolor() == "white"
        for line in axes.lines
        if line.get_linestyle() == "None"
        for x, y in zip(*line.get_data(), strict=True)
        if y == y_line and np.isfinite(x)
    }


def whiskers_of(axes: "Axes") -> list[list[float]]:
    """Ends of the intervals."""
    lines = [line for line in axes.lines if line.get_linestyle() != "None"]
    return [drawn_at(line) for line in lines if line.get_linewidth() == 1.6 and drawn_at(line)]


def test_every_published_difference_and_ours_has_its_line(fake: FakeResults) -> None:
    results, sums_by_row = losses(fake)
    figure = picture_of(resolved_artifact("evidence", "figure"), results, fake)
    axes, side = figure.axes
    line_positions = lines_of(figure)
    assert {"Published", "Found by others", "Here, scale tiny"} <= line_positions.keys()
    others = RESOLVER.papers.replications
    for replication in others:
        y = next(
            p
            for label, p in line_positions.items()
            if label.replace("\n", " ") == replication.study
        )
        expected = (
            {}
            if replication.difference is None
            else {replication.difference: replication.seeds == 1}
        )
        assert marks(axes, y) == expected
        written = {text.get_text() for text in side.texts if text.get_position()[1] == y}
        assert {str(replication.seeds), replication.model} <= written
    whiskers = whiskers_of(axes)
    assert len(whiskers) == 4 + len(
        [replication for replication in others if replication.deviation]
    )
    interval = stats.t(3, -0.016, 0.023 / 4**0.5).interval(0.95)  # stage 0, four more seeds
    assert tuple(whiskers[0]) == pytest.approx(interval)
    ours = sums_by_row["diff"] - sums_by_row["transformer"]
    dots = [sorted(x for x, _ in replication.get_offsets()) for replication in axes.collections]
    assert [-0.038, 0.017] in dots
    assert any(
        replication == pytest.approx(sorted(ours.sum(1) / TOKENS.sum())) for replication in dots
    )


def test_no_text_is_cut(fake: FakeResults) -> None:
    figure = picture("evidence", fake)
    figure.draw_without_rendering()
    edge = figure.bbox
    texts = [text for axes in figure.axes for text in (*axes.get_yticklabels(), *axes.texts)]
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert all(edge.x0 <= box.x0 and box.x1 <= edge.x1 for box in boxes)
    side = [text.get_window_extent() for text in figure.axes[1].texts]
    assert not any(label.overlaps(other) for i, label in enumerate(side) for other in side[:i])


def test_a_single_seed_is_drawn_hollow_without_replications(fake: FakeResults) -> None:
    artifact = resolved_artifact("evidence", "figure", (0,))
    alone = [part.model_copy(update={"replications": []}) for part in artifact.sections]
    artifact = artifact.model_copy(update={"sections": alone, "paper": None})
    figure = picture_of(artifact, load_results(fake.results, SCALE), fake)
    line_positions = lines_of(figure)
    assert next(iter(line_positions)) == "Here, scale tiny" and len(line_positions) == 5
    assert all(list(marks(figure.axes[0], y).values()) == [True] for y in range(1, 5))
    assert not whiskers_of(figure.axes[0])
