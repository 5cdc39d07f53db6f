"""Sweep jobs: search spaces, trials, early termination."""
