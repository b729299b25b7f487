"""Evaluations, one folder each; `difftransformer.config.evaluations` finds them by name."""
