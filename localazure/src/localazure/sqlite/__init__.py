"""SQLite with group commit: the parts' durable state."""
