"""Mathematics: accuracy and output length on eight sets, also of intermediate checkpoints."""
