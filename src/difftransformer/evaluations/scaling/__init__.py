"""Scaling: loss by model size or training tokens, with fitted power laws."""
