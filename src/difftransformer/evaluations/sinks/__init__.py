"""Attention sinks: how much attention goes to the first token of a window."""
