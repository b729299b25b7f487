"""Another suite, repeated with attention logits, weights or the key/value cache rounded."""
