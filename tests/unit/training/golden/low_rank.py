"""Write low_rank.json: parameters after eleven steps of the authors' GaLore and APOLLO.

Neither package is maintained, and galore-torch is CC-BY-NC, so the tests compare with these values.
To make them again, in an environment of the tests:

    pip install --no-deps galore-torch==1.0 apollo-torch==1.0.3
    PYTHONPATH=tests/unit/training python tests/unit/training/golden/low_rank.py
"""

import json
import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from test_low_rank import SHAPES, STEPS, case_name, gradients, starting

CASES = {
    "galore": [(3, 4, 0.25), (3, 100, 0.25), (20, 4, 0.25)],
    "apollo": [(3, 4, 1.0), (3, 100, 2.0), (20, 4, 1.0)],
}
REDRAWS = 3


def without_bitsandbytes() -> None:
    """Both packages import 8-bit optimizers, which nothing here needs."""
    for name in ("bitsandbytes", "bitsandbytes.functional", "bitsandbytes.optim"):
        sys.modules[name] = MagicMock()
    optimizer = types.ModuleType("bitsandbytes.optim.optimizer")
    optimizer.Optimizer2State = object  # type: ignore[attr-defined]
    sys.modules[optimizer.__name__] = optimizer


def final_parameters(kind: str, rank: int, gap: int, scale: float, decay: float) -> dict[str, Any]:
    from apollo_torch import APOLLOAdamW
    from galore_torch import GaLoreAdamW

    parameters = starting()
    group = {
        "params": [parameters[name] for name in SHAPES], "weight_decay": decay, "rank": rank,
        "update_proj_gap": gap, "scale": scale, "proj_type": "std", "proj": "random",
        "scale_type": "channel",
    }  # fmt: skip
    options: dict[str, Any] = {"betas": (0.9, 0.99), "eps": 1e-6, "no_deprecation_warning": True}
    if kind == "galore":
        optimizer = GaLoreAdamW([group], **options)
    else:
        optimizer = APOLLOAdamW([group], scale_front=False, **options)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 1e-2 / (step + 1)
        for name, grad in gradients(step).items():
            parameters[name].grad = grad.clone()
        optimizer.step()
    return {
        name: [[round(x, 8) for x in row] for row in parameters[name].tolist()] for name in SHAPES
    }


def projection_seeds() -> dict[str, list[int]]:
    """Seeds of each matrix's random projections: APOLLO counts matrices from 1 and chains seeds."""
    from apollo_torch.random_projector import next_seed

    chains = {}
    for position, name in enumerate(SHAPES):
        chain = [1 + position]
        for _ in range(REDRAWS):
            chain.append(next_seed(chain[-1]))
        chains[name] = chain
    return chains


if __name__ == "__main__":
    without_bitsandbytes()
    golden = {
        "source": "GaLoreAdamW of galore-torch 1.0 and APOLLOAdamW of apollo-torch 1.0.3, "
        f"torch {torch.__version__}",
        "apollo_seeds": projection_seeds(),
        "parameters": {
            case_name(kind, *case, decay): final_parameters(kind, *case, decay)
            for kind, cases in CASES.items()
            for case in cases
            for decay in (0.0, 0.1)
        },
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden) + "\n", encoding="utf-8")
