"""Attention of the last token of example sentences on a relevant word and a distractor."""
