"""OpenTelemetry: spans and metrics of batches, runs and notifications."""

from typing import TYPE_CHECKING

from handlers import loaded_on_demand

if TYPE_CHECKING:
    from handlers.telemetry import measuring as measuring
    from handlers.telemetry import metrics as metrics

__getattr__ = loaded_on_demand(__name__)
