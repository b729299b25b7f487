"""What variants cost and what they score, by several suites, their twins' among them."""
