"""Effective attention: the answer's share of attention in heads whose output Dex changes."""
