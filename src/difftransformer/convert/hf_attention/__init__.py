"""Attention maps of pretrained models: one file an architecture."""
