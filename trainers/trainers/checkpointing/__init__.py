"""Save, verify and load the state of a run."""
