"""Another suite, repeated with quantized attention logits, weights or KV cache."""
