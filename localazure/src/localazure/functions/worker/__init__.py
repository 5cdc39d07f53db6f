"""Runs functions as the Python worker does."""
