"""Contextual hallucination: what a model writes about a document, and what judges find."""
