"""Measured claims. `python -m benchmarks` runs them; docs/benchmarks.md tells what they said."""
