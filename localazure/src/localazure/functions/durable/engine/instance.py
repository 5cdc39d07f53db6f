"""One orchestration instance: its row, its executions, its runtime status."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Runtime status, with the values of `azure.durable_functions.OrchestrationRuntimeStatus`."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"
    TERMINATED = "Terminated"


LIVE: Final = frozenset({Status.PENDING, Status.RUNNING, Status.SUSPENDED})
FINISHED: Final = frozenset(Status) - LIVE


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The parent of a sub-orchestration, and the event in its history that created it."""

    instance_id: str
    execution_id: str
    event_id: int


@dataclass(frozen=True, kw_only=True)
class Execution:
    """One execution of an instance: constant until continue-as-new or the instance's end.

    `opening_json` is a JSON object with more fields of its ExecutionStarted event, and with the
    list `CarriedOver` of events that the previous execution has left to it; None: neither.
    """

    instance_id: str
    execution_id: str
    name: str
    version: str | None
    input_json: str | None
    created_at: datetime
    parent: Parent | None = None
    opening_json: str | None = None

    def as_parent(self, event_id: int) -> Parent:
        """This execution as the parent of the sub-orchestration created by its event `event_id`."""
        return Parent(
            instance_id=self.instance_id, execution_id=self.execution_id, event_id=event_id
        )


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A row of the store. `output` and `custom_status` are JSON texts."""

    execution: Execution
    status: Status
    started: bool
    custom_status: str | None
    output: str | None
    last_updated_at: datetime

    @classmethod
    def created(cls, execution: Execution) -> Instance:
        """A new instance, before its first episode."""
        return cls(
            execution=execution,
            status=Status.PENDING,
            started=False,
            custom_status=None,
            output=None,
            last_updated_at=execution.created_at,
        )
