"""Context RMS by position: magnitude of head outputs, beside each attention variant's bounds."""
