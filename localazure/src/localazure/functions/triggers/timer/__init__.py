"""Timer triggers."""
