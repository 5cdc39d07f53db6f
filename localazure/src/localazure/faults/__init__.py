"""Fault injection: parts ask a plan with a seed which of their operations fail."""
