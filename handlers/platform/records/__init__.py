"""The records of runs and rollouts."""
