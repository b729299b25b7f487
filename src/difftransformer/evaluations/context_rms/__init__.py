"""Context RMS by position: how large the heads' outputs are, beside what a mechanism allows."""
