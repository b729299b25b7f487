"""Columns of the training history as curves: gradient norms, lambdas, losses."""
