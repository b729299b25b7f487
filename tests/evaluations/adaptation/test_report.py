"""Learning and forgetting as a table and as curves, of made-up results."""

from pathlib import Path

import pytest
from built_tables import build_and_read
from fake_adaptation import METHODS
from fake_results import FakeResults
from fake_slices import RATES, SCALE, artifact_slice
from hypothesis import given
from hypothesis import strategies as st
from pictures import legend_of, picture_of

from difftransformer.config.artifacts import typed_artifact
from difftransformer.errors import ConfigError
from difftransformer.evaluations.adaptation.frontier import equal_level, learned_at
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.numbers import rate

WRITTEN = [rate(lr) for lr in RATES]


def test_the_table_has_both_losses_and_what_trained(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_methods", tmp_path)
    for method, (new, old, trained, extra) in METHODS.items():
        assert float(cells[method, "new"]["value"]) == pytest.approx(new, abs=0.03)
        assert float(cells[method, "old"]["value"]) == pytest.approx(old, abs=0.03)
        assert float(cells[method, "trained_parameters"]["value"]) == trained
        assert float(cells[method, "extra_parameters"]["value"]) == extra
    dex, control = (float(cells[f"adapted_{name}", "new"]["value"]) for name in ("dex", "kvo"))
    difference = float(cells["adapted_dex", "new_difference"]["value"])
    assert difference == pytest.approx(dex - control, abs=1e-9)
    assert ("adapted_kvo", "new_difference") not in cells


def test_the_frontier_has_a_point_for_each_rate(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_frontier", tmp_path)
    columns = {column for row, column in cells if row == "adapted_dex"}
    assert columns == {f"{text}@{rate}" for text in ("new", "old") for rate in WRITTEN} | {
        *("new_at_equal_old", "trained_parameters", "extra_parameters")
    }
    new = [float(cells["adapted_dex", f"new@{rate}"]["value"]) for rate in ("1e-3", "8e-3")]
    old = [float(cells["adapted_dex", f"old@{rate}"]["value"]) for rate in ("1e-3", "8e-3")]
    assert new[1] < new[0] - 0.4 and old[1] > old[0] + 0.4


def test_rows_are_compared_where_they_have_forgotten_as_much(
    fake: FakeResults, tmp_path: Path
) -> None:
    """Made-up losses add up to the same at every rate of a row."""
    cells = build_and_read(fake, "dex_equal_forgetting", tmp_path)
    sums = {run: sum(METHODS[run][:2]) for run in ("adapted_dex", "adapted_lora_matched")}
    reached = [METHODS[run][1] for run in ("adapted_dex", "adapted_kvo", "adapted_lora_matched")]
    level = (max(reached) + 0.3 * 1e-3 / 4e-3 + min(reached) + 0.3 * 8e-3 / 4e-3) / 2
    for run, both in sums.items():
        found = float(cells[run, "new_at_equal_old"]["value"])
        assert found == pytest.approx(both - level, abs=0.05)
    difference = float(cells["adapted_dex", "new_at_equal_old_difference"]["value"])
    assert difference == pytest.approx(sums["adapted_dex"] - sums["adapted_lora_matched"], abs=0.1)


def test_equal_forgetting_is_on_the_curves_or_nowhere() -> None:
    falling = [(3.0, 1.0), (2.0, 2.0), (1.0, 4.0)]
    short = [(5.0, 1.5), (4.0, 1.5), (4.5, 2.5)]
    assert equal_level([falling, short]) == 2.0
    assert learned_at(falling, 2.0) == 2.0 and learned_at(falling, 3.0) == 1.5
    assert learned_at(short, 2.0) == 4.25 and learned_at(short, 1.5) == 4.0
    assert learned_at(falling, 0.5) is None
    assert equal_level([falling, [(1.0, 9.0)]]) is None and equal_level([falling, []]) is None


@given(
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), min_size=1, max_size=6), st.floats(0, 9)
)
def test_what_is_learned_at_a_level_lies_on_the_curve(
    curve: list[tuple[float, float]], level: float
) -> None:
    found, olds = learned_at(curve, level), [old for _, old in curve]
    assert (found is not None) == (min(olds) <= level <= max(olds))
    if found is not None:
        news, rounding = [new for new, _ in curve], 1e-12
        assert min(news) - rounding <= found <= max(news) + rounding


def test_the_picture_draws_every_method_where_its_losses_are(fake: FakeResults) -> None:
    results = load_results(fake.results, SCALE)
    drawn = picture_of(artifact_slice("dex_frontier", "figure"), results, fake)
    (axes,) = drawn.axes
    assert all(len(line.get_xdata()) == len(RATES) for line in axes.lines)
    assert {"Dex", "KVO (Dex without W_D)", "LoRA"} <= set(legend_of(drawn))
    assert len(axes.lines) == len(legend_of(drawn))
    shown = {text.get_text() for text in axes.texts}
    assert shown == {"1e-3", "8e-3"}


def test_losses_by_tokens_are_a_curve_for_each_method(fake: FakeResults, tmp_path: Path) -> None:
    cells = build_and_read(fake, "dex_figure13", tmp_path)
    runs = {row for row, column in cells if column == "new"}
    assert runs >= {"adapted_dex", "adapted_dex_half_adaptation", "adapted_kvo_eighth_adaptation"}
    results = load_results(fake.results, SCALE)
    drawn = picture_of(artifact_slice("dex_figure13", "figure"), results, fake)
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["New text", "Old text"]
    for axes in drawn.axes:
        assert len(axes.lines) == 3
        for line in axes.lines:
            tokens = list(line.get_xdata())
            assert len(tokens) == 4 and tokens == sorted(tokens)


def test_by_tokens_it_needs_a_family() -> None:
    section = {
        "title": "t", "evaluation": "adaptation", "options": {"by": "tokens"},
        "suites": ["adaptation_new", "adaptation_old"], "rows": [{"run": "adapted_dex"}],
    }  # fmt: skip
    raw = {"title": "t", "description": "d", "sections": [section], "table": {"caption": "c"}}
    with pytest.raises(ConfigError, match="family: evaluation adaptation needs one"):
        typed_artifact(raw, "x.yaml")
    section["options"] = {"by": "run"}
    typed_artifact(raw, "x.yaml")
