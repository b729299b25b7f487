"""Contrasts: paired differences of a metric between chosen rows, beside replications by others."""
