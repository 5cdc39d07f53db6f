"""HTTP triggers."""
