"""Adapters between the handlers and Durable Functions."""
