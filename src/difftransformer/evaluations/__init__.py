"""One folder an evaluation, found by its name; see `difftransformer.config.evaluations`."""
