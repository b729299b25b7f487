"""Learning-rate sweeps: final metric by learning rate, the best rate and the rate in use."""
