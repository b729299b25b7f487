"""What variants cost and what they score, by several suites, their paired runs' among them."""
