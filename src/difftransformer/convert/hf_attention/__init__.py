"""Attention maps of transformers models: one file per architecture."""
