"""Activation outliers: the largest and the median attention logits and layer outputs."""
