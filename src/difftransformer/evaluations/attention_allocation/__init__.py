"""Attention allocation: how much attention an answer gets, and how much goes to noise."""
