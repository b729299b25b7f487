"""Results of the suite of curvature, with the shape of real ones."""

import random
from statistics import fmean
from typing import Any

from difftransformer.evaluations.curvature.settings import SPECTRA, Spectra, Spectrum, phase_metric

PHASES = {"early": 0.1, "middle": 0.5}
SUITE = "curvature_phases"
_BATCHES, _STEPS, _TOP = 3, 20, 5


def curvature(
    fake: Any, run: str, seed: int, suite: str = SUITE, phases: dict[str, float] = PHASES
) -> None:
    """Write the result of one run, and its spectra beside it."""
    noise = random.Random(f"curvature{run}{seed}")
    spectra = {
        phase: [_spectrum(noise, growth, run) for _ in range(_BATCHES)]
        for phase, growth in {"early": 6.0, "middle": 2.0, "late": 1.0}.items()
        if phase in {*phases, "late"}
    }
    metrics: dict[str, float | int | None] = {}
    for phase, batches in spectra.items():
        numbers = {
            "largest": fmean(batch.nodes[-1] for batch in batches),
            "smallest": fmean(batch.nodes[0] for batch in batches),
            "ratio": 0.4 + noise.gauss(0, 0.05),
            "negative_top": fmean(sum(x < 0 for x in batch.top) / _TOP for batch in batches),
            "negative_curvature": 0.45 + noise.gauss(0, 0.01),
            "negative_mass": 0.004,
            "error": 0.02,
        }
        metrics |= {phase_metric(name, phase): number for name, number in numbers.items()}
    details = fake.root / f"evaluations/{suite}/{run}/{seed}"
    details.mkdir(parents=True, exist_ok=True)
    (details / SPECTRA).write_text(Spectra(phases=spectra).model_dump_json())
    config = {
        "kind": "curvature", "seq_len": 64, "sequences": 16, "batches": _BATCHES,
        "steps": _STEPS, "phases": phases,
    }  # fmt: skip
    fake.evaluation(run, seed, suite, metrics, config)


def _spectrum(noise: random.Random, growth: float, run: str) -> Spectrum:
    low, high = (-0.6 if run == "diff" else -1.2) * growth, 2.0 * growth
    low, high = low * noise.uniform(0.8, 1.2), high * noise.uniform(0.8, 1.2)
    nodes = [low + (high - low) * step / (_STEPS - 1) for step in range(_STEPS)]
    weights = [10.0 ** (-6 * abs(node) / high) for node in nodes]
    top = sorted(nodes, key=abs, reverse=True)[:_TOP]
    shares = [weight / sum(weights) for weight in weights]
    return Spectrum(nodes=nodes, weights=shares, top=top, error=0.02 * high)
