"""Settings, clients, records, Service Bus, Durable Functions, telemetry: all else uses them."""
