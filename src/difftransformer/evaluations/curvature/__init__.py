"""Curvature of the loss: ends and density of the Hessian's spectrum, while a model learns."""
