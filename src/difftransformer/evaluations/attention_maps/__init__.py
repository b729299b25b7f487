"""Attention maps: similarity of a head's two maps, sparsity, and redundancy of heads."""
