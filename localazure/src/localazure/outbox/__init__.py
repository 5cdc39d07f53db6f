"""Publishes a part's durable outbox to Event Grid."""
