"""Attention allocation: shares of attention on the answer and on noise."""
