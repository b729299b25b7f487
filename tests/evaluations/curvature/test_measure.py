"""Numbers of a phase from spectra made by hand, and of small trainings whole."""

import dataclasses
import json
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
    known = {"seq_len": 16, "sequences": 3, "batches": 2, "steps": 6}
    return Suite(kind="curvature", **(known | changes))


@pytest.fixture
def trained(text: Path, tmp_path: Path) -> Path:
    """A finished training that kept weights after steps 2 and 10: those of other seeds."""
    sizes = {"d_model": 8, "ffn_dim": 8, "attention": {"variant": "diff_v1", "head_dim": 2}}
    run = save_run(tmp_path / "run", VOCAB, dataset=text, **sizes)
    config = load_model(run).config
    for step, seed in ((2, 8), (10, 9)):
        kept = run / "intermediate" / f"step-{step:08d}.safetensors"
        save_weights(kept, Transformer.build(config, "sdpa", seed).state_dict())
    republish(run, settings={"training": TRAINING.model_dump(mode="json")})
    return run


def eval_context(run: Path, text: Path, name: str = "one") -> EvalContext:
    details = run.parent / f"details-{name}"
    details.mkdir()
    scorer = Scorer(load_model(run, "eager"), CPU)
    state = run.parent / f"state-{name}"
    dataset = PackedDataset.open(text)
    return EvalContext(scorer, dataset, CPU, None, details, state, seed=3, model=run)


def spectra(found: EvalContext) -> Spectra:
    return Spectra.model_validate_json((found.details / SPECTRA).read_text())


def test_numbers_of_spectra_made_by_hand() -> None:
    first = Spectrum(
        nodes=[[-2.0, -0.1, 1.0, 4.0], [-1.0, 0.0, 5.0]],
        weights=[[0.1, 0.2, 0.3, 0.4], [0.25, 0.5, 0.25]],
        top=[5.0, -2.0, 1.0],
        error=0.5,
    )
    second = Spectrum(nodes=[[1.0, 2.0]], weights=[[0.5, 0.5]], top=[2.0, 1.0, 0.5], error=0.02)
    numbers, per_item = summary([first, second])
    assert numbers["largest"] == pytest.approx((5 + 2) / 2)
    assert numbers["smallest"] == pytest.approx((-2 + 1) / 2)
    assert numbers["ratio"] == pytest.approx((2 + 0) / (5 + 2))
    assert numbers["negative_top"] == pytest.approx((1 / 3 + 0) / 2)
    assert numbers["negative_mass"] == pytest.approx((0.1 + 0.25) / 2 / 2)
    negative = (0.1 * 2 + 0.2 * 0.1 + 0.25) / 2
    positive = (0.3 + 1.6 + 1.25) / 2
    expected = negative / (negative + positive + 1.5)
    assert numbers["negative_curvature"] == pytest.approx(expected)
    assert numbers["error"] == pytest.approx(0.1)
    assert {*per_item} == {*numbers} - {"error"}


def test_it_is_the_spectrum_of_the_exact_hessian(trained: Path, text: Path) -> None:
    """As many steps as tell both ends and the largest five, against LAPACK on the whole matrix."""
    found = eval_context(trained, text)
    asked = suite(steps=60, probes=2)
    metrics = metrics_of(measure(asked, found))
    model = load_model(trained, "eager").double()
    ends = []
    for windows, ours in zip(
        validation_batches(asked, found), spectra(found).phases["late"], strict=True
    ):
        hessian = LossHessian(model, windows, 8)
        columns = [hessian(one) for one in torch.eye(hessian.size, dtype=torch.float64)]
        exact = np.linalg.eigvalsh(torch.stack(columns).numpy())
        largest = sorted(exact, key=abs, reverse=True)[:5]
        assert ours.top == pytest.approx(largest, rel=1e-4)
        ends.append((exact[0], exact[-1]))
    low, high = np.mean(ends, axis=0)
    assert metrics["smallest"] == pytest.approx(low, rel=1e-4)
    assert metrics["largest"] == pytest.approx(high, rel=1e-4)


def test_each_phase_is_of_its_own_weights(trained: Path, text: Path) -> None:
    asked = suite(phases={"middle": 0.5, "early": 0.1})
    found = eval_context(trained, text)
    together = metrics_of(measure(asked, found))
    assert list(spectra(found).phases) == ["early", "middle", "late"]
    for phase, step in (("_early", 2), ("_middle", 10)):
        alone = shutil.copytree(trained, trained.parent / f"alone{phase}")
        shutil.copy(
            trained / "intermediate" / f"step-{step:08d}.safetensors", alone / "model.safetensors"
        )
        republish(alone)
        expected = measure(suite(), eval_context(alone, text, phase)).metrics
        for name, value in expected.items():
            assert together[f"{name}{phase}"] == value, (phase, name)
    assert together["largest_early"] != together["largest_middle"] != together["largest"]


def test_the_same_twice_and_known_by_batch(trained: Path, text: Path) -> None:
    first = measure(suite(), eval_context(trained, text, "first"))
    again = measure(suite(), eval_context(trained, text, "again"))
    assert first == again
    assert all(sizes(per_item) == [("", 2)] for per_item in first.per_item.values())


def test_windows_in_memory_change_nothing(trained: Path, text: Path) -> None:
    whole = measure(suite(), eval_context(trained, text, "whole")).metrics
    parts = measure(suite(batch_size=2), eval_context(trained, text, "parts")).metrics
    assert parts == pytest.approx(whole, rel=1e-3)


def test_a_killed_job_goes_on_with_the_next_batch(
    trained: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = suite(phases={"early": 0.1})
    undisturbed = measure(asked, eval_context(trained, text, "undisturbed"))
    killed, measured = eval_context(trained, text, "killed"), []

    def stops(*given: Any) -> Spectrum:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(given[-2])
        return spectrum_of(*given)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "spectrum_of", stops)
        with pytest.raises(KeyboardInterrupt):
            measure(asked, killed)
        measured[:] = []
        resumed = dataclasses.replace(killed)
        assert measure(asked, resumed) == undisturbed
        assert measured == [1]


def test_batches_are_spread_over_the_split_and_disjoint(trained: Path, text: Path) -> None:
    asked = suite(sequences=4, batches=3)
    found = validation_batches(asked, eval_context(trained, text))
    assert [tuple(one.shape) for one in found] == [(4, 17)] * 3
    assert len({tuple(row.tolist()) for one in found for row in one}) == 12


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        (
            {"sequences": 500},
            DataError,
            r"has \d+ windows of 16 tokens, 2 batches of 500 need 1000",
        ),
        (
            {"phases": {"early": 0.3}},
            CheckpointError,
            r"step-00000006.safetensors: no such file: train run diff again with 0.3 among its "
            r"save_checkpoints_at \[0.1, 0.5\]",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    changes: dict[str, Any], error: type[UserError], said: str, trained: Path, text: Path
) -> None:
    with pytest.raises(error, match=said) as caught:
        measure(suite(**changes), eval_context(trained, text))
    assert "\n" not in str(caught.value)


def test_kept_weights_that_are_gone_are_one_line(trained: Path, text: Path) -> None:
    found = eval_context(trained, text)
    (trained / "intermediate" / "step-00000002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"step-00000002\.safetensors: no such file"):
        measure(suite(phases={"early": 0.1}), found)


def test_a_diverged_model_is_one_line(trained: Path, text: Path) -> None:
    model = load_model(trained)
    with torch.no_grad():
        model.norm.weight.fill_(float("nan"))
    save_weights(trained / "model.safetensors", model.state_dict())
    republish(trained)
    with pytest.raises(CheckpointError, match=r"model.safetensors: its loss has no finite curv"):
        measure(suite(), eval_context(trained, text))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 4}, "greater than or equal to 5"),
        ({"phases": {"late": 0.5}}, "'late' is that of the final weights"),
        ({"phases": {"Early 1": 0.5}}, "pattern"),
        ({"phases": {"early": 1.0}}, "less than 1"),
        ({"backend": "sdpa"}, "'eager'"),
        ({"precision": "bf16"}, "'fp32'"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        suite(**changes)


def test_a_model_with_too_short_a_context_is_refused_before_any_job() -> None:
    assert suite().incompatibility(16, None) is None
    assert suite().incompatibility(15, None) == "seq_len 16 is longer than its max_positions 15"


def test_details_are_plain_json(trained: Path, text: Path) -> None:
    found = eval_context(trained, text)
    measure(suite(), found)
    (batch, *_) = json.loads((found.details / SPECTRA).read_text())["phases"]["late"]
    assert {*batch} == {"nodes", "weights", "top", "error"}
    assert sum(batch["weights"][0]) == pytest.approx(1)
