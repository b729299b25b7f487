"""One folder a measurement, found by its name; see `difftransformer.config.measurements`."""
