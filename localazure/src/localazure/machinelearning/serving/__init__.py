"""Managed online endpoints: deployments as processes, a proxy that splits traffic, metrics."""
