"""Sizes of payloads, as the storage provider of host.json has them.

The Durable Task Scheduler (`azureManaged`) refuses what is too large. Azure Storage, the default,
moves a large payload to a blob: that works, but costs a write and a read for each use, so a warning
names its function once.
"""

from __future__ import annotations

import logging

from localazure import limits
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import EventType
from localazure.functions.durable.engine.instance import Execution

_logger = logging.getLogger(__name__)

_CALLS = {
    EventType.TASK_SCHEDULED: "activity",
    EventType.SUB_ORCHESTRATION_INSTANCE_CREATED: "sub-orchestration",
}


class PayloadTooLarge(ValueError):
    """A payload that the storage provider does not take; says which, and its size."""


class PayloadLimits:
    """Checks the payloads of one task hub.

    Args:
        limit_bytes: of one payload; None where large ones are moved to blobs.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._named: set[str] = set()

    def check(self, subject: str, json_text: str | None) -> None:
        """Check one payload.

        Args:
            subject: says whose payload it is, such as "the result of activity 'x'".
            json_text: the payload; None is none.

        Raises:
            PayloadTooLarge: the provider refuses it.
        """
        threshold_bytes = self._limit_bytes or limits.DURABLE_STORAGE_MESSAGE.value
        # A character has at most four bytes: most payloads are not encoded to be measured.
        if json_text is None or 4 * len(json_text) <= threshold_bytes:
            return
        size_bytes = len(json_text.encode("utf-8", "surrogatepass"))
        if size_bytes <= threshold_bytes:
            return
        if self._limit_bytes is not None:
            raise PayloadTooLarge(
                f"{subject} has {size_bytes:,} bytes; the Durable Task Scheduler takes at most "
                f"{self._limit_bytes:,}: keep it in a blob and pass its address"
            )
        if subject not in self._named:
            self._named.add(subject)
            _logger.warning(
                "%s has %d bytes: Azure Storage moves payloads over %d bytes to a blob, which "
                "costs a write and a read for each use; pass a blob's address instead",
                subject,
                size_bytes,
                threshold_bytes,
            )


def check_payloads(payloads: PayloadLimits, execution: Execution, effects: Effects) -> None:
    """Check what an episode hands on: inputs of its steps, its output, its next input.

    Raises:
        PayloadTooLarge: the provider refuses one of them.
    """
    for step in effects.steps:
        if step["EventType"] in _CALLS:
            subject = f"the input of {_CALLS[step['EventType']]} '{step['Name']}'"
            payloads.check(subject, step["Input"])
    payloads.check(f"the output of orchestrator '{execution.name}'", effects.output)
    payloads.check(f"the next input of orchestrator '{execution.name}'", effects.next_input)
