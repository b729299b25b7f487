"""Attention maps of models from elsewhere: one file an architecture."""
