"""Scaling: loss by model size or training tokens, and where two rows have equal loss."""
