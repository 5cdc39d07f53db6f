"""Size limits of payloads, depending on the storage provider in host.json.

The Durable Task Scheduler (`azureManaged`) refuses large payloads. Azure Storage, the default,
moves them to blobs, which costs a write and a read for each use; a warning names each function
once.
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
    """The storage provider does not accept a payload. The message has its name and size."""


class PayloadLimits:
    """Checks the payloads of one task hub.

    Args:
        limit_bytes: the limit of one payload; None if large payloads are moved to blobs.
    """

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._named: set[str] = set()

    def check(self, subject: str, json_text: str | None) -> None:
        """Check one payload.

        Args:
            subject: names the payload in messages, such as "the result of activity 'x'".
            json_text: the payload; None: no payload.

        Raises:
            PayloadTooLarge: the provider refuses it.
        """
        threshold_bytes = self._limit_bytes or limits.DURABLE_STORAGE_MESSAGE.value
        # A character has at most four bytes, so most payloads need not be encoded.
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
    """Check the payloads of an episode: the inputs of its steps, its output, its next input.

    Raises:
        PayloadTooLarge: the provider refuses one of them.
    """
    for step in effects.steps:
        if step["EventType"] in _CALLS:
            subject = f"the input of {_CALLS[step['EventType']]} '{step['Name']}'"
            payloads.check(subject, step["Input"])
    payloads.check(f"the output of orchestrator '{execution.name}'", effects.output)
    payloads.check(f"the next input of orchestrator '{execution.name}'", effects.next_input)
