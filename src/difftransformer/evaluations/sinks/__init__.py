"""Attention sinks: the share of attention on the first token of a window."""
