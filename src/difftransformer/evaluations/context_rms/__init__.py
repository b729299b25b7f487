"""Context RMS by position: magnitude of head outputs, beside the bounds of each mechanism."""
