"""Faults on demand: a plan with a seed decides, each part asks it at its own points."""
