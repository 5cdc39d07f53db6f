"""Blob triggers."""
