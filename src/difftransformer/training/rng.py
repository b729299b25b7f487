"""The random number generators of a process: seeded together, saved and put back together."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed python's, numpy's and torch's global generators (CUDA's too, where there is one)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def rng_tensors(device: torch.device) -> dict[str, Tensor]:
    """Return the states of torch's generators, as byte tensors."""
    states = {"rng.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(device)
    return states


def rng_state() -> dict[str, Any]:
    """Return the states of python's and numpy's generators, as JSON values."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    assert not isinstance(keys, str)
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, [int(key) for key in keys], position, has_gauss, cached],
    }


def made_on(tensors: dict[str, Tensor]) -> str:
    """Return the kind of device of the process that `rng_tensors` was called in."""
    return "cuda" if "rng.cuda" in tensors else "cpu"


def restore_rng(tensors: dict[str, Tensor], state: dict[str, Any], device: torch.device) -> None:
    """Put back what `rng_tensors` and `rng_state` gave."""
    torch.set_rng_state(tensors["rng.cpu"])
    if device.type == "cuda" and made_on(tensors) == "cuda":
        torch.cuda.set_rng_state(tensors["rng.cuda"], device)
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
