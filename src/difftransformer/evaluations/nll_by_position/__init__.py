"""Cumulative loss of held-out long documents by position."""
