"""OpenTelemetry: spans and metrics of batches, runs and notifications."""
