"""Curves of columns of the training history: gradient norms, lambdas, losses."""
