"""Training stability: spikes of the loss and of the gradient norm, and divergence."""
