"""Prediction whether a job uses GPU code, before the job runs."""

import json
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path

from difftransformer.machine import gpus

_FOR_GPUS = frozenset({"flash_attn", "fused"})


def computes_on_gpu(device: str, backends: Iterable[str], result: str | None) -> bool:
    """Return whether a job uses GPU code.

    Args:
        device: "cpu", "cuda" or "auto". For "auto" the device in the job's finished result counts;
            without a result, whether this machine has a GPU.
        backends: Attention backends of the job; `fused` counts as GPU code also on a CPU, where
            Triton's interpreter runs it.
        result: Path of the job's result, which may not exist yet.
    """
    if device != "auto" or not _FOR_GPUS.isdisjoint(backends):
        return device == "cuda" or not _FOR_GPUS.isdisjoint(backends)
    recorded = _recorded(Path(result)) if result is not None else None
    return _sees_cuda() if recorded is None else recorded.startswith("cuda")


def _recorded(result: Path) -> str | None:
    """Return the device that a result file records; None if there is no readable result."""
    try:
        return str(json.loads(result.read_bytes())["settings"]["resolved"]["device"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@cache
def _sees_cuda() -> bool:
    """Return whether this machine has GPUs and a torch build for them."""
    return bool(gpus.visible_gpus()) and not version("torch").endswith("+cpu")
