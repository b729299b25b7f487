"""Training stability: spikes of the loss and the gradient norm, and divergence."""
