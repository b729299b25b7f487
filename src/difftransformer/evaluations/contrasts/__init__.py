"""Contrasts: paired differences of a metric between chosen rows, beside what others found."""
