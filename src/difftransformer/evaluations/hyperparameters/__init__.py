"""Hyperparameters of runs (DIFF paper, tables 9 and 10)."""
