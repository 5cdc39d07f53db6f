"""A Durable Task Scheduler on the durable engine, for programs of the Durable Task SDKs."""
