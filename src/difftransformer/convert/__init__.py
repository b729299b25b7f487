"""Models as files, in the formats of other packages, and the attention of models from elsewhere."""
