"""Sections and panels by phase, and the error of a damaged file."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from fake_configs import SCALE, resolved_artifact
from fake_curvature import PHASES, SUITE, curvature
from fake_results import FakeResults, rewrite
from pictures import picture

from difftransformer.errors import DataError
from difftransformer.evaluations.curvature.report import density
from difftransformer.evaluations.curvature.settings import SPECTRA, Spectrum
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import make_table

ROWS = ("transformer", "diff", "diff_fixed_lambda")


def test_there_is_a_section_per_phase(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    sections = make_table(resolved_artifact("dex_figure7"), results).sections
    titles = [section.title for section in sections]
    assert titles == [
        "Early: after 10% of training",
        "Middle: after 50% of training",
        "Late: final weights",
    ]
    for section, ending in zip(sections, ("_early", "_middle", ""), strict=True):
        for row in ROWS:
            for name, factor in (("negative_top", 100), ("largest", 1), ("ratio", 1)):
                cell = section.cell(row, name + ending)
                measured = [
                    results.evaluation(SUITE, row, seed).metrics[name + ending]
                    for seed in (0, 1, 2)
                ]
                assert cell is not None
                assert cell.value == pytest.approx(factor * fmean(map(float, measured)))
        printed = [column.id for column in section.columns if not column.csv_only]
        assert f"negative_top{ending}_difference" in printed
    text = " ".join(sections[0].notes)
    assert "3 batches of 16 held-out windows of 64 tokens" in text and "at most 0.02" in text


def test_a_density_integrates_to_one() -> None:
    spectra = [
        Spectrum(nodes=[-1.0, 0.0, 3.0], weights=[0.2, 0.5, 0.3], top=[3.0], error=0.0),
        Spectrum(nodes=[1.0], weights=[1.0], top=[1.0], error=0.0),
    ]  # fmt: skip
    grid = np.linspace(-3, 5, 2001)
    curve = density(spectra, grid)
    step = grid[1] - grid[0]
    assert curve.sum() * step == pytest.approx(1)
    mean = (-0.2 + 0.9 + 1.0) / 2  # every batch counts once
    assert (curve * grid).sum() * step == pytest.approx(mean)


def test_panels_share_their_axes_and_mark_both_ends(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    figure = picture("dex_figure7", fake)
    assert len(figure.axes) == len(PHASES) + 1
    assert all(a.get_xlim() == b.get_xlim() for a, b in pairwise(figure.axes))
    assert {axes.get_yscale() for axes in figure.axes} == {"log"}
    for axes, ending in zip(figure.axes, ("_early", "_middle", ""), strict=True):
        marks = [line for line in axes.lines if line.get_linestyle() == "None"]
        for line, row in zip(marks, ROWS, strict=True):
            metrics = [results.evaluation(SUITE, row, seed).metrics for seed in (0, 1, 2)]
            ends = [values[end + ending] for values in metrics for end in ("smallest", "largest")]
            assert list(line.get_xdata()) == ends


def test_a_damaged_file_fails_with_a_one_line_error(small: FakeResults) -> None:
    for row in ROWS:
        small.language_model(row, 0)
        curvature(small, row, 0)
    path = small.root / f"evaluations/{SUITE}/diff/0/{SPECTRA}"
    path.write_text('{"phases": {"late": [{"nodes": 3}]}}')
    rewrite(Path(f"{path.parent}.json"), Path(f"{path.parent}.json").read_text())
    with pytest.raises(DataError, match=r"spectra.json: not a file of spectra \(phases.late.0"):
        picture("dex_figure7", small, (0,))
