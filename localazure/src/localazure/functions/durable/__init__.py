"""The local stand-in for the Durable Functions extension: an event-sourced engine on SQLite."""
