"""Resources of the machine: GPUs, memory, file locks, processes, Slurm."""

import gc

ALLOCATIONS = 50_000
"""Allocations between two garbage collections. Importing torch and transformers creates a million
objects that live until the end. With Python's default of 700, collections take a fifth of the time
of a short process."""


def relax_gc() -> None:
    """Make Python's garbage collector run less often in this process."""
    gc.set_threshold(ALLOCATIONS)
