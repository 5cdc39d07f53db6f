"""Durable triggers: orchestrators, activities, entities."""
