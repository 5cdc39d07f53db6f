"""The orchestrator of a run, and its decisions."""
