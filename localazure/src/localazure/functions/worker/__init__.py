"""Runs functions: the Python worker's duties."""
