"""The progress of one run: its state, its custom status, its record and its notifications."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from datetime import datetime
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.contracts.base import ActivityRequest, Done, Result
from orchestrations.contracts.notifications import (
    Notification,
    PublishNotification,
    RunNotificationKind,
)
from orchestrations.contracts.retraining import RunInput
from orchestrations.contracts.run_records import RecordRun, RunRecord, RunStep
from orchestrations.contracts.runs import RunState, RunStatus, fit_status
from orchestrations.contracts.transitions import FIRST_STATE, RunEvent, follow
from orchestrations.errors import LandfallError
from orchestrations.names import notification_id
from orchestrations.platform.activities import Pending, Step, call, wait_for_all
from orchestrations.platform.replay_logger import ReplayLogger
from orchestrations.platform.trace_context import run_header


class RunProgress:
    """State of a run in one generation of `retraining`."""

    def __init__(self, context: DurableOrchestrationContext, given: RunInput) -> None:
        request = given.request
        self.context = context
        self.request = request
        self.id = request.run
        self.traceparent = run_header(request.traceparent, self.id)
        self.log = ReplayLogger(context)
        self.nodes_returned = False
        """Whether the nodes that the run held in its queue were returned."""
        self.notification: RunNotificationKind | None = None
        """The notification of the last transition, if it has one."""
        waiting = given.waiting
        self.status = RunStatus(
            id=self.id,
            pipeline=request.pipeline.name,
            attempt=request.attempt,
            dataset_version=request.dataset.version,
            state=_first_state(given),
            since=_since(given) or context.current_utc_datetime,
            job=waiting.job.name if waiting else None,
            reason=given.awaiting.reason if given.awaiting else None,
            error=given.ending,
            redrive=request.redrive,
        )
        self.known = RunRecord(
            status=self.status,
            started_at=self.status.since,
            steps=(RunStep(state=self.status.state, began_at=self.status.since),),
            blobs=request.dataset.blobs,
            bytes=request.dataset.bytes,
            traceparent=request.traceparent,
        )
        """This generation's part of the run's record; the parts of all generations are merged."""
        self._show()

    def advance(self, event: RunEvent, **changes: Any) -> None:
        """Make the transition of an event, and show it in the custom status."""
        transition = follow(self.status.state, event)
        self.notification = transition.notification
        self.status = self.status.model_copy(
            update={
                "state": transition.target,
                "since": self.context.current_utc_datetime,
                **changes,
            }
        )
        step = RunStep(state=transition.target, began_at=self.status.since)
        self.known = self.known.model_copy(update={"steps": (*self.known.steps, step)})
        self._show()
        self.log.info("%s: %s -> %s (%s)", self.id, transition.source, transition.target, event)

    def update(self, **changes: Any) -> None:
        """Change the status without a transition."""
        self.status = self.status.model_copy(update=changes)
        self._show()

    def note(self, **facts: Any) -> None:
        """Set fields of `RunRecord`, which the next `record` writes."""
        self.known = self.known.model_copy(update=facts)

    def record(self) -> Generator[Any, Any, None]:
        """Write the states so far, and the known facts, to the run's record.

        The run continues if this fails, because it does not depend on the record. The next call
        writes the same states again; reconciliation writes the end if the last call fails.
        """
        with contextlib.suppress(LandfallError):
            yield from call(self.context, self._recording())

    def record_beside(self, request: ActivityRequest[Result]) -> Step[Result]:
        """Run an activity in parallel with writing the record; wait for both."""
        record, step = Pending(self.context, self._recording()), Pending(self.context, request)
        yield from wait_for_all(self.context, record, step)
        return (yield from step.result())

    def notify(self) -> Step[Done]:
        """Put the last transition's notification into the outbox."""
        assert self.notification is not None, f"{self.status.state} has no notification"
        notification = Notification(
            id=notification_id(self.id, self.notification),
            kind=self.notification,
            at=self.context.current_utc_datetime,
            status=self.status,
            diagnosis=self.known.diagnosis,
            receiver=self.request.receiver,
            traceparent=self.traceparent,
        )
        request = PublishNotification(pipeline=self.request.pipeline, notification=notification)
        return (yield from call(self.context, request))

    def _recording(self) -> RecordRun:
        return RecordRun(record=self.known.model_copy(update={"status": self.status}))

    def _show(self) -> None:
        self.status = fit_status(self.status)
        self.context.set_custom_status(self.status.to_dict())


def _first_state(given: RunInput) -> RunState:
    if given.ending:
        return "ending"
    if given.awaiting:
        return "waiting_for_nodes"
    if given.waiting:
        return "running" if given.waiting.job.state == "running" else "queued"
    return FIRST_STATE


def _since(given: RunInput) -> datetime | None:
    """When the current state began, if an earlier generation entered it."""
    if given.waiting:
        return given.waiting.state_since
    return given.awaiting.since if given.awaiting else None
