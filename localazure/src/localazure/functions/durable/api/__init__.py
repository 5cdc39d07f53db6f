"""The HTTP API of the durable extension."""
