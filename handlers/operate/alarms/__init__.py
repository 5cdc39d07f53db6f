"""Alarms about what did not happen or will end."""
