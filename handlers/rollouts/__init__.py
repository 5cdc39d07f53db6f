"""Rollouts: who has an endpoint, what people decided, what the deployment's metrics show."""
