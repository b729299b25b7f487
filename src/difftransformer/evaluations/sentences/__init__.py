"""Attention of example sentences' last token on a relevant word and on a distractor."""
