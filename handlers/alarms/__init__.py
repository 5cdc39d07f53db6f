"""Silence alarms: what should have happened and has not."""
