"""Activities and instances of Durable Functions."""
