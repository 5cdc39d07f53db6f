"""The state of a run on disk, and the way back from it."""
