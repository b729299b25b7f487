"""Prompts that hide needles in a haystack and ask for some of them, in two formats."""
