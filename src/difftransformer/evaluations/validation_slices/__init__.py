"""Validation loss, overall and in the slices AR-Hit and Others."""
