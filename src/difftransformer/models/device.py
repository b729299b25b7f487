"""In which precision a job computes, and whether it gives the same bits each time."""

import torch


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the context of a precision: "bf16" computes products in it, "fp32" changes nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def set_deterministic(deterministic: bool, *, compiled: bool = False) -> None:
    """Allow only operations that give the same bits each time, or any.

    Args:
        deterministic: Whether others raise.
        compiled: Whether inductor must know, too: it is imported then, which takes 3 s.
    """
    if compiled:
        torch.use_deterministic_algorithms(deterministic)
    else:
        torch.set_deterministic_debug_mode("error" if deterministic else "default")
    # Filling every fresh tensor with NaN only unmasks reads of uninitialized memory; it costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
