"""Service Bus triggers."""
