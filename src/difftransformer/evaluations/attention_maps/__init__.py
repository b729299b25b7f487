"""Attention maps: how the two of a head agree, how sparse they are, how alike those of heads."""
