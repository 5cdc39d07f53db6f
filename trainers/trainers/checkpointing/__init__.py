"""The state of a run on disk: saved, verified, loaded."""
