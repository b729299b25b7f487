"""Loss of an adapted model on the target text and on the source text."""
