"""Deterministic orchestrators and their pure decisions: no I/O, no clock, no environment."""
