"""Tasks: the loss of a batch, and the scores on held-out samples."""
