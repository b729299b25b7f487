"""Multi-needle retrieval: accuracy by needles, context length and depth."""
