"""Contrasts: paired differences of a metric between chosen models, beside others' replications."""
