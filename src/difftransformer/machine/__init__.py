"""What a machine gives to jobs."""

import gc

ALLOCATIONS = 50_000
"""Between two searches. Importing torch and transformers makes a million objects that stay; to
search them at Python's own pace, every 700, costs a short process a fifth of its time."""


def relax_gc() -> None:
    """Let this process search for cycles at a pace that short work does not feel."""
    gc.set_threshold(ALLOCATIONS)
