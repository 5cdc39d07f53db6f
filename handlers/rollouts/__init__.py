"""Rollouts: claims on endpoints, people's decisions, and measurements of deployments."""
