"""Training data: where samples are stored, how they are read, in which order."""
