"""Triggers and activities: everything that touches the world."""
