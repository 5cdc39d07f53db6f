"""The task hub on SQLite."""
