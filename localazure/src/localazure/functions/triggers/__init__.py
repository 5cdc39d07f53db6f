"""Triggers, a package for each kind."""
