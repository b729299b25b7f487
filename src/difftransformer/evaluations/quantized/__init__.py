"""Repeat another suite with quantized attention logits, weights or KV cache."""
