"""Service Bus: retries, dead letters, alerts to operators."""
