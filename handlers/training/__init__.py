"""Trains on a frozen batch: nodes, jobs of Azure ML, models and champions, later attempts."""
