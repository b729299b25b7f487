"""Multi-needle retrieval: accuracy by number of needles, context length and depth."""
