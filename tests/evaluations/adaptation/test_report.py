"""Target and source losses as a table and as curves, from synthetic results."""

from pathlib import Path

import pytest
from built_tables import build_and_read
from fake_adaptation import METHODS
from fake_configs import RATES, SCALE, resolved_artifact
from fake_results import FakeResults
from hypothesis import given
from hypothesis import strategies as st
from pictures import legend_of, picture_of

from difftransformer.config.artifacts import typed_artifact
from difftransformer.errors import ConfigError
from difftransformer.evaluations.adaptation.report import shared_source_loss, target_loss_at
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.number_format import format_learning_rate

WRITTEN = [format_learning_rate(lr) for lr in RATES]


def test_the_table_has_both_losses_and_parameter_counts(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_methods", tmp_path)
    for method, (new, old, trained, extra) in METHODS.items():
        assert float(cells[method, "target"]["value"]) == pytest.approx(new, abs=0.03)
        assert float(cells[method, "source"]["value"]) == pytest.approx(old, abs=0.03)
        assert float(cells[method, "trained_parameters"]["value"]) == trained
        assert float(cells[method, "extra_parameters"]["value"]) == extra
    dex, control = (float(cells[f"adapted_{name}", "target"]["value"]) for name in ("dex", "kvo"))
    difference = float(cells["adapted_dex", "target_difference"]["value"])
    assert difference == pytest.approx(dex - control, abs=1e-9)
    assert ("adapted_kvo", "target_difference") not in cells


def test_the_frontier_has_a_point_for_each_rate(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_frontier", tmp_path)
    columns = {column for row, column in cells if row == "adapted_dex"}
    assert columns == {f"{text}@{rate}" for text in ("target", "source") for rate in WRITTEN} | {
        *("target_at_equal_source", "trained_parameters", "extra_parameters")
    }
    new = [float(cells["adapted_dex", f"target@{rate}"]["value"]) for rate in ("1e-3", "8e-3")]
    old = [float(cells["adapted_dex", f"source@{rate}"]["value"]) for rate in ("1e-3", "8e-3")]
    assert new[1] < new[0] - 0.4 and old[1] > old[0] + 0.4


def test_rows_are_compared_at_equal_source_loss(fake: FakeResults, tmp_path: Path) -> None:
    """Synthetic losses have the same sum at every rate of a row."""
    cells = build_and_read(fake, "dex_equal_forgetting", tmp_path)
    sums = {run: sum(METHODS[run][:2]) for run in ("adapted_dex", "adapted_lora_matched")}
    reached = [METHODS[run][1] for run in ("adapted_dex", "adapted_kvo", "adapted_lora_matched")]
    level = (max(reached) + 0.3 * 1e-3 / 4e-3 + min(reached) + 0.3 * 8e-3 / 4e-3) / 2
    for run, total in sums.items():
        value = float(cells[run, "target_at_equal_source"]["value"])
        assert value == pytest.approx(total - level, abs=0.05)
    difference = float(cells["adapted_dex", "target_at_equal_source_difference"]["value"])
    assert difference == pytest.approx(sums["adapted_dex"] - sums["adapted_lora_matched"], abs=0.1)


def test_equal_source_loss_is_on_all_curves_or_undefined() -> None:
    falling = [(3.0, 1.0), (2.0, 2.0), (1.0, 4.0)]
    short = [(5.0, 1.5), (4.0, 1.5), (4.5, 2.5)]
    assert shared_source_loss([falling, short]) == 2.0
    assert target_loss_at(falling, 2.0) == 2.0 and target_loss_at(falling, 3.0) == 1.5
    assert target_loss_at(short, 2.0) == 4.25 and target_loss_at(short, 1.5) == 4.0
    assert target_loss_at(falling, 0.5) is None
    assert (
        shared_source_loss([falling, [(1.0, 9.0)]]) is None
        and shared_source_loss([falling, []]) is None
    )


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=6), st.floats(0, 9)
)
def test_an_interpolated_target_loss_is_on_the_curve(
    curve: list[tuple[float, float]], level: float
) -> None:
    target, sources = target_loss_at(curve, level), [source for _, source in curve]
    assert (target is not None) == (min(sources) <= level <= max(sources))
    if target is not None:
        targets, rounding = [target for target, _ in curve], 1e-12
        assert min(targets) - rounding <= target <= max(targets) + rounding


def test_the_picture_draws_every_method_where_its_losses_are(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    drawn = picture_of(resolved_artifact("dex_frontier", "figure"), results, fake)
    (axes,) = drawn.axes
    assert all(len(line.get_xdata()) == len(RATES) for line in axes.lines)
    assert {"Dex", "KVO (Dex without W_D)", "LoRA"} <= set(legend_of(drawn))
    assert len(axes.lines) == len(legend_of(drawn))
    labels = {text.get_text() for text in axes.texts}
    assert labels == {"1e-3", "8e-3"}


def test_losses_by_tokens_are_a_curve_for_each_method(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_figure13", tmp_path)
    runs = {row for row, column in cells if column == "target"}
    assert runs >= {"adapted_dex", "adapted_dex_half_adaptation", "adapted_kvo_eighth_adaptation"}
    results = load_results(fake.results, SCALE)
    drawn = picture_of(resolved_artifact("dex_figure13", "figure"), results, fake)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["Target text", "Source text"]
    for axes in drawn.axes:
        assert len(axes.lines) == 3
        for line in axes.lines:
            tokens = list(line.get_xdata())
            assert len(tokens) == 4 and tokens == sorted(tokens)


def test_the_view_by_tokens_needs_a_family() -> None:
    section = {
        "title": "t", "evaluation": "adaptation", "options": {"by": "tokens"},
        "suites": ["adaptation_target", "adaptation_source"], "rows": [{"run": "adapted_dex"}],
    }  # fmt: skip
    raw = {"title": "t", "description": "d", "sections": [section], "table": {"caption": "c"}}
    with pytest.raises(ConfigError, match="size_grid: evaluation adaptation needs one"):
        typed_artifact(raw, "x.yaml")
    section["options"] = {"by": "run"}
    typed_artifact(raw, "x.yaml")
