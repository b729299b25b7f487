"""Mathematics: accuracy and length of output on eight sets, also along training."""
