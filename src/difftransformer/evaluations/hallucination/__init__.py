"""Contextual hallucination: outputs of models about documents, and judgments of these outputs."""
