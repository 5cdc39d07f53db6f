"""A logger for orchestrators: silent while they replay."""

from __future__ import annotations

import logging

from azure.durable_functions import DurableOrchestrationContext


class ReplayLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs each line once: not during replay."""

    def __init__(self, context: DurableOrchestrationContext) -> None:
        super().__init__(logging.getLogger("landfall"))
        self._context = context

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name in logging
        """Whether a line of this level is logged now."""
        return not self._context.is_replaying and super().isEnabledFor(level)
