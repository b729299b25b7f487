"""Many-shot in-context learning: accuracy by the number of demonstrations and their order."""
