"""Stability tables: spikes, divergence, and histories that are refused."""

from pathlib import Path

import pytest
from fake_configs import resolved_artifact, sweep
from fake_results import FakeResults
from fake_v2 import HOT_STEPS, SWEPT_HOT, hot_model, hot_sweeps
from pictures import hollow, picture

from difftransformer.errors import DataError, UserError
from difftransformer.evaluations.stability.spikes import stability_of
from difftransformer.reporting.collect import load_results
from difftransformer.reporting.table_job import make_table

WINDOW = 20
TESTED = HOT_STEPS - WINDOW


@pytest.fixture(autouse=True)
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{stability_of.__module__}.WINDOW", WINDOW)


def calm(fake: FakeResults, run: str, seed: int = 0) -> list[dict[str, float | None]]:
    """Write a training run without spikes; return its points."""
    hot_model(fake, run, seed)
    points: list[dict[str, float | None]] = [
        {"step": step, "loss": 3.0 + 0.01 * (step % 3), "grad_norm": 1.0 + 0.01 * (step % 5)}
        for step in range(1, HOT_STEPS + 1)
    ]
    fake.history(run, seed, points)
    return points


def test_spikes_are_counted_among_the_tested_steps(tmp_path: Path) -> None:
    fake = FakeResults(tmp_path / "tiny")
    points = calm(fake, "hot_diff")
    for step in (5, 40, 60):  # the first is before the window is full
        points[step]["loss"] = 9.0
    points[50]["grad_norm"] = 30.0
    fake.history("hot_diff", 0, points)
    (stability,) = stability_of(load_results(fake.results, "tiny"), "hot_diff", [0])
    assert stability.values["loss_spikes"] == 100 * 2 / TESTED
    assert stability.values["gradient_spikes"] == 100 * 1 / TESTED
    assert stability.values["diverged"] == 0


@pytest.mark.parametrize(("step", "lost"), [(51, 30), (5, TESTED)])
def test_steps_after_a_divergence_are_spikes(tmp_path: Path, step: int, lost: int) -> None:
    fake = FakeResults(tmp_path / "tiny")
    points = calm(fake, "hot_diff")
    hot_model(fake, "hot_diff", 0, step)
    fake.history("hot_diff", 0, points[: step - 1])
    results = load_results(sorted(set(fake.results)), "tiny")
    (stability,) = stability_of(results, "hot_diff", [0])
    share = 100 * lost / TESTED
    assert stability.values == {
        "loss_spikes": share,
        "gradient_spikes": share,
        "diverged": 1,
        "final_loss": None,
    }


def test_a_history_with_gaps_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeResults(tmp_path / "tiny")
    fake.history("hot_diff", 0, calm(fake, "hot_diff")[::2])
    results = load_results(fake.results, "tiny")
    with pytest.raises(DataError, match=r"lacks steps.*log_every to 1"):
        stability_of(results, "hot_diff", [0])
    monkeypatch.setattr(f"{stability_of.__module__}.WINDOW", 80)
    with pytest.raises(DataError, match=r"80 steps.*window of 80"):
        stability_of(results, "hot_diff", [0])


def test_a_training_that_does_not_record_divergence_is_refused(tmp_path: Path) -> None:
    fake = FakeResults(tmp_path / "tiny")
    fake.language_model("diff", 0)
    with pytest.raises(UserError, match="diverged"):
        stability_of(load_results(fake.results, "tiny"), "diff", [0])


def test_large_rates_start_at_the_configured_one(tmp_path: Path) -> None:
    fake = FakeResults(tmp_path / "tiny")
    hot_sweeps(fake, {run: sweep(run) for run in SWEPT_HOT}, (0, 1, 2))
    table = make_table(resolved_artifact("v2_stability"), load_results(fake.results, "tiny"))
    loss, _, diverged, final = table.sections
    at_4, at_8, large = (
        loss.cell("hot_transformer", f"loss_spikes{name}") for name in ("@4e-3", "@8e-3", "_large")
    )
    assert at_4 and at_8 and large and at_4.value is not None and at_8.value is not None
    assert large.value == pytest.approx((at_4.value + at_8.value) / 2)
    assert any(note.startswith(f"Training: {HOT_STEPS} steps per run; ") for note in loss.notes)
    assert len(large.job_ids()) == 6
    share = diverged.cell("hot_transformer", "diverged@8e-3")
    assert share and share.value == pytest.approx(2 / 3)
    end = final.cell("hot_transformer", "final_loss@8e-3")
    assert end and end.n == 1 and "2 diverged" in end.text


def test_a_rate_at_which_every_model_diverges_is_left_out_of_the_mean(tmp_path: Path) -> None:
    fake = FakeResults(tmp_path / "tiny")
    swept = {run: sweep(run) for run in SWEPT_HOT}
    hot_sweeps(fake, swept, (0, 1, 2))
    for entry in (e for rates in swept.values() for e in rates if e.learning_rate == 8e-3):
        for seed in (0, 1, 2):
            hot_model(fake, entry.run_id, seed, 2)
            fake.history(entry.run_id, seed, [{"step": 1, "loss": 9.0, "grad_norm": 9.0}])
    results = load_results(sorted(set(fake.results)), "tiny")
    loss, *_ = make_table(resolved_artifact("v2_stability"), results).sections
    at_4, large = (
        loss.cell("hot_transformer", f"loss_spikes{name}") for name in ("@4e-3", "_large")
    )
    assert at_4 and large and large.value == at_4.value
    assert any("Left out, as every model diverges at once: 8e-3." in n for n in loss.notes)


def test_a_final_loss_without_diverged_seeds_is_hollow(fake: FakeResults) -> None:
    panels = picture("v2_stability", fake).axes
    marks = {axes.get_title("left"): hollow(axes) for axes in panels}
    assert marks.pop("Final validation loss") == [8e-3]
    assert not any(marks.values())
