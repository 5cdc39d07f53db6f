"""Storage queue triggers."""
