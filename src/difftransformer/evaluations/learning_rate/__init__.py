"""Learning-rate sweeps: final metric by rate, the best rate and the rate in use."""
