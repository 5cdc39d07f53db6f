"""Notifications to Event Grid, operators and webhooks."""
