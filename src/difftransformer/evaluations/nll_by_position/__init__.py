"""Cumulative loss by position in held-out long documents."""
