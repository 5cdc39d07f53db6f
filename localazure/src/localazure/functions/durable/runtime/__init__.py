"""Runs orchestrations, entities and activities against the store."""
