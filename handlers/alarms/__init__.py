"""Silence alarms: an expected event did not happen."""
