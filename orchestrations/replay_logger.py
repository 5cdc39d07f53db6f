"""A logger for orchestrators: silent while they replay."""

from __future__ import annotations

import logging
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

_logger = logging.getLogger("landfall")


class ReplayLogger:
    """Logs each line once, in the episode in which it happens first."""

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self._context = context

    def info(self, text: str, *arguments: Any) -> None:
        """Log progress."""
        self._log(logging.INFO, text, arguments)

    def warning(self, text: str, *arguments: Any) -> None:
        """Log something that went wrong, and that the orchestrator handles."""
        self._log(logging.WARNING, text, arguments)

    def _log(self, level: int, text: str, arguments: tuple[Any, ...]) -> None:
        if not self._context.is_replaying:
            _logger.log(level, text, *arguments)
