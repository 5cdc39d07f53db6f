"""Service Bus: retries, dead letters, operators' alerts."""
