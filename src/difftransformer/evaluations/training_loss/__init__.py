"""Validation loss along training, and its differences between models."""
