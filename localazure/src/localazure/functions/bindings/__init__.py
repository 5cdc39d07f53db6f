"""Input and output bindings."""
