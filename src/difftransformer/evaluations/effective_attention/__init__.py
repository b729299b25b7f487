"""Effective attention: the answer's share in the attention of heads whose output Dex changes."""
