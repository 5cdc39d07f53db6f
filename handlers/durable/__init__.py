"""Between the handlers and Durable Functions."""
