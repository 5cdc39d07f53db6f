"""Triggers, with a package for each kind."""
