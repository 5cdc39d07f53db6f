"""Retention: what grows with every batch and run, how long it is kept, and its removal."""
