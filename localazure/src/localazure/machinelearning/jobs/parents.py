"""Jobs with children: what a pass over a sweep and one over a pipeline have in common.

A child is inserted in the transaction of the decision, with a name derived from its parent's. After
kill -9, the next start therefore continues with exactly the children that exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.runner_protocol import StopOrder
from localazure.machinelearning.jobs.states import TERMINAL, WAITING, JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobRow,
    JobTransaction,
    NewJob,
    get_job,
    list_children,
)
from localazure.machinelearning.store import Resource, put_resource

CANCELLED_BY_PARENT = StopOrder()


@dataclass
class PassResult:
    """What a pass over all parents has left to do."""

    stop: list[str] = field(default_factory=list[str])
    """Jobs with a new stop order that must be delivered to their runners."""
    has_changed: bool = False
    """Whether another pass may find something to do."""
    wake_at: float | None = None
    """When the next timed change is due, epoch seconds."""

    def wake(self, at: float) -> None:
        """Request another pass at this time or earlier."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def begin(jobs: JobTransaction, parent: JobRow) -> JobRow:
    """Set a waiting parent to Running: it needs no nodes."""
    if parent.status in WAITING:
        jobs.set_status(parent.name, JobStatus.PREPARING)
    if parent.status in WAITING or parent.status is JobStatus.PREPARING:
        jobs.set_status(parent.name, JobStatus.RUNNING)
    return get_job(jobs.query, parent.name) or parent


@dataclass
class ParentPass(ABC):
    """One pass over one parent that has begun."""

    sibling_failed: ClassVar[StopOrder]
    """To the children of a parent that fails."""

    jobs: JobTransaction
    result: PassResult
    parent: JobRow
    resource: Resource

    def __post_init__(self) -> None:
        self.query = self.jobs.query
        self.children = list_children(self.query, self.parent.name)

    def run(self) -> None:
        """Move the parent on; if a pass before failed, end its children, and then the parent."""
        if not (self.parent.error_code and self.parent.status is JobStatus.RUNNING):
            self._advance()
            return
        unfinished = [child for child in self.children if child.status not in TERMINAL]
        for child in unfinished:
            self._cancel_child(child, self.sibling_failed)
        if not unfinished:
            self.jobs.set_status(self.parent.name, JobStatus.FAILED)

    @abstractmethod
    def _advance(self) -> None:
        """Apply the next actions of the parent's kind."""

    def _cancel(self, name: str, order: StopOrder) -> None:
        if self.jobs.request_cancel(name, order):
            self.result.stop.append(name)
        self.result.has_changed = True

    def _cancel_child(self, child: JobRow, order: StopOrder) -> None:
        """Cancel a child unless it is ending already."""
        if child.status not in {JobStatus.CANCEL_REQUESTED, JobStatus.FINALIZING}:
            self._cancel(child.name, order)

    def _end(self, status: JobStatus) -> None:
        if status is not JobStatus.CANCELED:
            self.jobs.set_status(self.parent.name, JobStatus.FINALIZING)
        self.jobs.set_status(self.parent.name, status)
        self.result.has_changed = True

    def _insert(
        self, job: NewJob, properties: dict[str, Any], status: JobStatus = JobStatus.QUEUED
    ) -> None:
        if get_job(self.query, job.name) is not None:
            raise invalid(f"the name {job.name!r} is taken by a job of another origin")
        self.jobs.insert(job, {"properties": properties}, status)
        self.result.has_changed = True

    def _put_properties(self, **changes: Any) -> None:
        """Change properties of the parent's document."""
        properties = {**self.resource.properties, **changes}
        document = {**self.resource.document, "properties": properties}
        name, connection = self.parent.name, self.jobs.connection
        put_resource(connection, JOBS, name, "", document, now=self.jobs.now)
