"""Resources of the machine: GPUs, memory, locks, processes, Slurm."""

import gc

ALLOCATIONS = 50_000
"""Allocations between two garbage collections. Importing torch and transformers creates a million
objects that stay; Python's default of 700 costs a short process a fifth of its time."""


def relax_gc() -> None:
    """Run the garbage collector less often in this process."""
    gc.set_threshold(ALLOCATIONS)
