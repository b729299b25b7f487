"""Attention maps: similarity of the two maps of a head, sparsity, and redundancy of heads."""
