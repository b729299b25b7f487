"""Needle-in-a-haystack prompts: synthetic key-value tokens, or English sentences."""
