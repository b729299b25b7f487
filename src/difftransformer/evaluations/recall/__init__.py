"""Key-value retrieval: accuracy by the number of pairs, and when a model learns it."""
