"""Cost of attention variants, and their scores in several suites and of their paired runs."""
