"""Loads and describes a user's app."""
