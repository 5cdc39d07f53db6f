"""A trained model as a folder, and who loads it."""
