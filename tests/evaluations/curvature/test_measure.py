"""Metrics of a phase from given spectra, and of small training runs."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from small_evaluation import VOCAB, metrics_of, republish, save_run, sizes

from difftransformer.config.training import TrainingConfig
from difftransformer.convert.checkpoint import load_model, save_weights
from difftransformer.data.packed import PackedDataset
from difftransformer.errors import CheckpointError, DataError, UserError
from difftransformer.evaluation.context import EvalContext
from difftransformer.evaluation.scorer import Scorer
from difftransformer.evaluations.curvature import measure as evaluation
from difftransformer.evaluations.curvature.hessian import LossHessian
from difftransformer.evaluations.curvature.measure import (
    measure,
    spectrum_of,
    summary,
    validation_batches,
)
from difftransformer.evaluations.curvature.settings import SPECTRA, Spectra, Spectrum, Suite
from difftransformer.models.transformer import Transformer

CPU = torch.device("cpu")
TRAINING = TrainingConfig(
    seq_len=16, batch_size=2, steps=20, lr=1e-3, warmup_steps=2, save_checkpoints_at=[0.1, 0.5]
)


def suite(**changes: Any) -> Suite:
    settings = {"seq_len": 16, "sequences": 3, "batches": 2, "steps": 6}
    return Suite(kind="curvature", **(settings | changes))


@pytest.fixture
def trained(text: Path, tmp_path: Path) -> Path:
    """Return a finished run with checkpoints of steps 2 and 10: models of other seeds."""
    sizes = {"d_model": 8, "ffn_dim": 8, "attention": {"variant": "diff_v1", "head_dim": 2}}
    run = save_run(tmp_path / "run", VOCAB, dataset=text, **sizes)
    config = load_model(run).config
    for step, seed in ((2, 8), (10, 9)):
        checkpoint = run / "intermediate" / f"step-{step:08d}.safetensors"
        save_weights(checkpoint, Transformer.build(config, "sdpa", seed).state_dict())
    republish(run, settings={"training": TRAINING.model_dump(mode="json")})
    return run


def eval_context(run: Path, text: Path, name: str = "one") -> EvalContext:
    details = run.parent / f"details-{name}"
    details.mkdir()
    scorer = Scorer(load_model(run, "eager"), CPU)
    state = run.parent / f"state-{name}"
    dataset = PackedDataset.open(text)
    return EvalContext(scorer, dataset, CPU, None, details, state, seed=3, model=run)


def spectra(context: EvalContext) -> Spectra:
    return Spectra.model_validate_json((context.details / SPECTRA).read_text())


def test_metrics_of_given_spectra() -> None:
    first = Spectrum(
        nodes=[-2.0, -0.1, 1.0, 4.0, 5.0],
        weights=[0.1, 0.2, 0.3, 0.25, 0.15],
        top=[5.0, -2.0, 1.0],
        error=0.5,
    )
    second = Spectrum(nodes=[1.0, 2.0], weights=[0.5, 0.5], top=[2.0, 1.0, 0.5], error=0.02)
    metrics, by_batch = summary([first, second])
    assert metrics["largest"] == pytest.approx((5 + 2) / 2)
    assert metrics["smallest"] == pytest.approx((-2 + 1) / 2)
    assert metrics["ratio"] == pytest.approx((2 + 0) / (5 + 2))
    assert metrics["negative_top"] == pytest.approx((1 / 3 + 0) / 2)
    assert metrics["negative_mass"] == pytest.approx(0.1 / 2)
    negative, positive = 0.1 * 2 + 0.2 * 0.1, 0.3 + 1.0 + 0.75
    expected = negative / (negative + positive + 1.5)
    assert metrics["negative_curvature"] == pytest.approx(expected)
    assert metrics["error"] == pytest.approx(0.1)
    assert {*by_batch} == {*metrics} - {"error"}


def test_the_spectrum_equals_that_of_the_exact_hessian(trained: Path, text: Path) -> None:
    """Both ends and the largest five, after enough steps, against LAPACK on the full matrix."""
    context = eval_context(trained, text)
    settings = suite(steps=60)
    metrics = metrics_of(measure(settings, context))
    model = load_model(trained, "eager").double()
    ends = []
    for windows, ours in zip(
        validation_batches(settings, context), spectra(context).phases["late"], strict=True
    ):
        hessian = LossHessian(model, windows, 8)
        columns = [hessian(unit) for unit in torch.eye(hessian.size, dtype=torch.float64)]
        exact = np.linalg.eigvalsh(torch.stack(columns).numpy())
        largest = sorted(exact, key=abs, reverse=True)[:5]
        assert ours.top == pytest.approx(largest, rel=1e-4)
        ends.append((exact[0], exact[-1]))
    low, high = np.mean(ends, axis=0)
    assert metrics["smallest"] == pytest.approx(low, rel=1e-4)
    assert metrics["largest"] == pytest.approx(high, rel=1e-4)


def test_each_phase_uses_its_checkpoint(trained: Path, text: Path) -> None:
    settings = suite(phases={"middle": 0.5, "early": 0.1})
    context = eval_context(trained, text)
    all_phases = metrics_of(measure(settings, context))
    assert list(spectra(context).phases) == ["early", "middle", "late"]
    for phase, step in (("_early", 2), ("_middle", 10)):
        copy = shutil.copytree(trained, trained.parent / f"run{phase}")
        shutil.copy(
            trained / "intermediate" / f"step-{step:08d}.safetensors", copy / "model.safetensors"
        )
        republish(copy)
        expected = measure(suite(), eval_context(copy, text, phase)).metrics
        for name, value in expected.items():
            assert all_phases[f"{name}{phase}"] == value, (phase, name)
    assert all_phases["largest_early"] != all_phases["largest_middle"] != all_phases["largest"]


def test_results_are_reproducible_and_have_scores_by_batch(trained: Path, text: Path) -> None:
    first = measure(suite(), eval_context(trained, text, "first"))
    again = measure(suite(), eval_context(trained, text, "again"))
    assert first == again
    assert all(sizes(per_item) == [("", 2)] for per_item in first.per_item.values())


def test_batch_size_changes_nothing(trained: Path, text: Path) -> None:
    single = measure(suite(), eval_context(trained, text, "single")).metrics
    split = measure(suite(batch_size=2), eval_context(trained, text, "split")).metrics
    assert split == pytest.approx(single, rel=1e-3)


def test_a_killed_job_resumes_with_the_next_batch(
    trained: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = suite(phases={"early": 0.1})
    undisturbed = measure(settings, eval_context(trained, text, "undisturbed"))
    killed, measured = eval_context(trained, text, "killed"), []

    def interrupted(*args: Any) -> Spectrum:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(args[-2])
        return spectrum_of(*args)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "spectrum_of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure(settings, killed)
        measured[:] = []
        resumed = dataclasses.replace(killed)
        assert measure(settings, resumed) == undisturbed
        assert measured == [1]


def test_batches_are_spread_over_the_split_and_disjoint(trained: Path, text: Path) -> None:
    settings = suite(sequences=4, batches=3)
    batches = validation_batches(settings, eval_context(trained, text))
    assert [tuple(batch.shape) for batch in batches] == [(4, 17)] * 3
    assert len({tuple(row.tolist()) for batch in batches for row in batch}) == 12


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"sequences": 500}, DataError, r"2 batches of 500 need 1000"),
        (
            {"phases": {"early": 0.3}},
            CheckpointError,
            r"step-00000006\.safetensors.*no such file.*save_checkpoints_at \[0\.1, 0\.5\]",
        ),
    ],
)
def test_missing_data_and_checkpoints_fail_with_a_one_line_error(
    changes: dict[str, Any], error: type[UserError], message: str, trained: Path, text: Path
) -> None:
    with pytest.raises(error, match=message) as caught:
        measure(suite(**changes), eval_context(trained, text))
    assert "\n" not in str(caught.value)


def test_a_deleted_checkpoint_fails(trained: Path, text: Path) -> None:
    context = eval_context(trained, text)
    (trained / "intermediate" / "step-00000002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"step-00000002\.safetensors: no such file"):
        measure(suite(phases={"early": 0.1}), context)


def test_a_diverged_model_fails(trained: Path, text: Path) -> None:
    model = load_model(trained)
    with torch.no_grad():
        model.norm.weight.fill_(float("nan"))
    save_weights(trained / "model.safetensors", model.state_dict())
    republish(trained)
    with pytest.raises(CheckpointError, match=r"model\.safetensors.*no finite curvature"):
        measure(suite(), eval_context(trained, text))


def test_a_phase_may_not_have_the_name_of_the_final_one() -> None:
    with pytest.raises(ValidationError, match="'late' names the final weights"):
        suite(phases={"late": 0.5})


def test_a_context_that_is_too_short_is_refused_before_any_job() -> None:
    assert suite().incompatibility(16, None) is None
    assert "max_positions 15" in (suite().incompatibility(15, None) or "")
