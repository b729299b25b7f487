"""Learning-rate sweeps: the metric at the end by rate, the best rate and the one in use."""
