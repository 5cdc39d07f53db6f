"""Telemetry: an OTLP receiver that keeps spans, and answers whole traces."""

from localazure.telemetry.service import serve

__all__ = ["serve"]
