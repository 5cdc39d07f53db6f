"""Rolls a model out to an endpoint."""
