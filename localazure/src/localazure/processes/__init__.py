"""Utilities for processes: lifetime, locks, ports, files, memory."""
