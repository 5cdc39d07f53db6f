"""HTTP, event, message and timer triggers: what starts work."""
