"""Event Grid triggers."""
