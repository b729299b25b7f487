"""Attention on example sentences: what the last token sees of words that mislead."""
