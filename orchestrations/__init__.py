"""Deterministic generators and the pure decisions they take: no I/O, no clock, no environment."""
