"""Removes what no run, batch or model needs."""
