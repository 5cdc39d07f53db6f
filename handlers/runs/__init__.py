"""Runs as people see them: a record of each, and an index of all."""
