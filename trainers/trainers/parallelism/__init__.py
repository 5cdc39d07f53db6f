"""Ranks, and the distribution of a network over them."""
