"""Finds and repairs what was lost with an event, a message or an instance."""
