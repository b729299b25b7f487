"""Curvature of the loss: extreme eigenvalues and density of the Hessian, during training."""
