"""Loss on the target and on the source text after a trained model is adapted."""
