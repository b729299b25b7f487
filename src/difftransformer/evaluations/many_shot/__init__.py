"""Many-shot in-context learning: accuracy by number and order of demonstrations."""
