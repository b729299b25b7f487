"""Differential Transformer experiments as rebuildable artifacts."""
