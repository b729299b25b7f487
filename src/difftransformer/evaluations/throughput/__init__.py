"""Throughput and memory of training and forward passes (DIFF paper, table 7)."""
