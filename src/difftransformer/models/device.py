"""Mixed precision and determinism of a job."""

import torch


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return the autocast context of a precision: "bf16" (mixed precision) or "fp32" (disabled)."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def set_deterministic(deterministic: bool, *, compiled: bool = False) -> None:
    """Switch torch's deterministic algorithms on or off for this process.

    Args:
        deterministic: Whether nondeterministic operations raise an error.
        compiled: Whether to configure inductor, too; importing it takes 3 s.
    """
    if compiled:
        torch.use_deterministic_algorithms(deterministic)
    else:
        torch.set_deterministic_debug_mode("error" if deterministic else "default")
    # Filling new tensors with NaN would only unmask reads of uninitialized memory; it costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
