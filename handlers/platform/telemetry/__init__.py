"""Spans and metrics over OTLP; W3C trace contexts."""
