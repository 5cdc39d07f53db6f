"""Telemetry: an OTLP receiver that keeps spans, and answers whole traces."""
