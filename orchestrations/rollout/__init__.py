"""The orchestrator of a rollout, and its decisions."""
