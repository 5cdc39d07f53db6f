"""Clients of storage queues and tables."""
