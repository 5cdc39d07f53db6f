"""What is trained on: where samples lie, how they are read, in which order."""
