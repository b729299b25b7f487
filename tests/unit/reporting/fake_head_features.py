"""Results of the suite of heads' outputs, with the shape of real ones."""

import random
from typing import Any

import torch
from safetensors.torch import save_file

HEADS = {
    "transformer": 8, "transformer_halved_heads": 4, "diff": 4, "adapted_kvo": 8, "adapted_dex": 8,
}  # fmt: skip
_LAYERS = 2


def head_features(fake: Any, run: str, seed: int, suite: str = "head_features") -> None:
    """Write the result of one run, and its arrays beside it."""
    noise = random.Random(f"heads{run}{seed}")
    level = (0.2 if "diff" in run else 0.35) + noise.gauss(0, 0.02)
    even = (0.6 if "diff" in run else 0.4) + noise.gauss(0, 0.03)
    metrics: dict[str, float | None] = {
        "cka": level, "cka_all": 0.8 * level, "importance_evenness": even, "tokens": 32_768,
        "dex_cosine": 0.1 if run == "adapted_dex" else None,
        "dex_norm": 0.02 if run == "adapted_dex" else None,
    }  # fmt: skip
    for layer in range(_LAYERS):
        metrics |= {f"cka_l{layer}": level, f"importance_evenness_l{layer}": even}
    number = HEADS[run]
    positions = torch.arange(number) / number
    details = fake.root / f"evaluations/{suite}/{run}/{seed}"
    details.mkdir(parents=True, exist_ok=True)
    arrays = {
        "cka": torch.full((_LAYERS * number, _LAYERS * number), level).fill_diagonal_(1.0),
        "importance": torch.stack([1 - (1 - even) * positions, (1 - positions) ** 2]),
    }
    if run == "adapted_dex":
        changed = torch.rand(_LAYERS, number, generator=torch.Generator().manual_seed(seed))
        changed[:, ::2] = torch.nan
        arrays |= {"cosine": changed - 0.5, "norm": changed}
    save_file(arrays, details / "heads.safetensors")
    config = {"kind": "head_features", "seq_len": 128, "samples": 256}
    fake.evaluation(run, seed, suite, metrics, config)
