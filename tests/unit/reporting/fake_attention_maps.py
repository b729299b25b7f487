"""Results of the suite of attention maps, with the shape of real ones."""

import random
from collections.abc import Iterable
from typing import Any

import torch
from safetensors.torch import save_file

MAPS = {
    "transformer": 8, "transformer_halved_heads": 4, "transformer_halved_heads_groupnorm": 4,
    "diff": 4, "diff_v2": 4,
}  # fmt: skip
"""Row -> heads."""
LAYERS = 2
_KINDS = {"spearman": (0.6, 0.2), "pearson": (0.7, 0.3), "js": (0.05, 0.1), "cosine": (0.2, 0.4)}
"""Kind -> over all tokens, over salient ones."""


def attention_maps(
    fake: Any,
    run: str,
    seed: int,
    depth: int = LAYERS,
    attending: Iterable[int] | None = None,
    suite: str = "attention_maps",
) -> None:
    """Write the result of one run, and its matrix beside it; None: all its layers have maps."""
    noise = random.Random(f"maps{run}{seed}")
    two, layers = "diff" in run, set(range(depth) if attending is None else attending)
    own: dict[str, float | None] = {}
    for kind, (over_all, top) in _KINDS.items():
        own[f"{kind}_all"] = over_all if two else None
        own[f"{kind}_top"] = top if two else None
        own[f"{kind}_all_surrogate"] = over_all if two else None
        own[f"{kind}_top_surrogate"] = (over_all + top) / 2 if two else None
    own |= {
        "below_1e4": 0.1 if two else 0.2, "below_1e6": 0.001 if two else 0.01,
        "entropy": 3.2 if two else 2.8, "entropy_first": 3.0 if two else None,
        "entropy_second": 3.4 if two else None, "entropy_maps": 3.2 if two else None,
        "negative_fraction": 0.4 if two else 0.0, "positive_magnitude": 0.02,
        "negative_magnitude": 0.01 if two else None, "distance": 0.7 if two else 0.4,
    }  # fmt: skip
    noisy = {name: value and value * (1 + noise.gauss(0, 0.02)) for name, value in own.items()}
    metrics = noisy | {"distance_all": 0.6, "tokens": 32_768}
    metrics |= {
        f"{name}_l{layer}": value if layer in layers else None
        for name, value in noisy.items()
        for layer in range(depth)
    }
    number = len(layers) * MAPS.get(run, 4)
    details = fake.root / f"evaluations/{suite}/{run}/{seed}"
    details.mkdir(parents=True, exist_ok=True)
    distance = torch.full((number, number), noisy["distance"], dtype=torch.float64)
    generator = torch.Generator().manual_seed(len(run) + seed)
    rows = torch.rand(2, depth, 3, 128, generator=generator)
    arrays = {
        "distance": distance.fill_diagonal_(0.0), "absolute": rows,
        "signed": rows - 0.5 * two, "queries": torch.tensor([60, 90, 127]),
    }  # fmt: skip
    save_file(arrays, details / "maps.safetensors")
    config = {
        "kind": "attention_maps", "seq_len": 128, "top_fraction": 0.05,
        "first_query": 61,
    }  # fmt: skip
    fake.evaluation(run, seed, suite, metrics, config)
