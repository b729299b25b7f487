"""Effective attention: the weights on the values that would give what changed heads put out."""
