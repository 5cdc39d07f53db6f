"""The durable engine: pure decisions, no I/O and no clock."""
