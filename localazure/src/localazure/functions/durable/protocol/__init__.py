"""The protocol of the Durable Task SDKs (gRPC) on the engine: its service and its messages."""
