"""Handlers of HTTP requests, events and timers, which start work."""
