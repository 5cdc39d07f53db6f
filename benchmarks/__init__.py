"""Benchmarks. `python -m benchmarks` runs them; docs/benchmarks.md has their results."""
