"""`notify`: what people and other systems are told of runs, and the list of runs."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.platform import instances, run_records
from orchestrations.contracts.base import Failure
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, notification_of
from orchestrations.contracts.runs import STATUS_LIMIT_BYTES, RunStatus
from orchestrations.platform.activities import describe
from orchestrations.training import retraining, run_progress
from tests.simulation.feature import Change, Feature, Mistake
from tests.simulation.features.faults import nothing_waits_for_ever
from tests.simulation.planting import body, both, nothing, round_without
from tests.simulation.story import HOUR, Outage, Terminate
from tests.simulation.weeks import UPLOAD, UPLOADED_AT, first_job

if TYPE_CHECKING:
    from orchestrations.errors import LandfallError
    from tests.simulation.evidence import Evidence
    from tests.simulation.world import Failure


STACK = "Traceback (most recent call last)"


def _was_undeliverable(evidence: Evidence, notification: str) -> bool:
    return any(letter.startswith(notification) for letter in evidence.letters)


def every_end_is_notified_once(evidence: Evidence) -> Iterator[str]:
    """The notification is on every channel, and there is no other final one."""
    ends = {notification_of(state) for state in TERMINAL_RUN_STATES}
    for run in evidence.runs.values():
        if run.instance.is_live:
            continue
        state: Any = "failed" if run.broke_early else run.state
        if state not in TERMINAL_RUN_STATES:
            continue
        wanted = notification_of(state)
        caller = ("webhook/caller",) if evidence.requests[run.id].receiver else ()
        event_grid = ("event_grid",) if evidence.requests[run.id].pipeline.notify.event_grid else ()
        for channel in (*event_grid, "webhook/model-watch", "service_bus", *caller):
            kinds = run.kinds.get(channel, set())
            if wanted not in kinds and not _was_undeliverable(evidence, f"{run.id}:{wanted}"):
                yield f"{run.id} ended as {state}: {channel} has {sorted(kinds)}"
            for other in (kinds & ends) - {wanted}:
                yield f"{run.id} ended as {state}: {channel} has {other}, too"
        if not caller and run.kinds.get("webhook/caller"):
            yield f"{run.id}: a receiver that nobody asked for is told of it"


def every_end_is_in_the_list_of_runs(evidence: Evidence) -> Iterator[str]:
    """A run is listed once, under the state of its end, and its timeline ends with it."""
    for run in evidence.runs.values():
        if run.instance.is_live:
            continue
        state = "failed" if run.broke_early else run.state
        if evidence.run_index[run.id] != [state]:
            yield f"{run.id} ended as {state}: the index has {evidence.run_index[run.id]}"
        steps = evidence.run_steps.get(run.id, [])
        if steps[-1:] != [state]:
            yield f"{run.id} ended as {state}: its record has {steps}"


def messages_carry_no_stacks(evidence: Evidence) -> Iterator[str]:
    """People read them: statuses, alerts, dead letters."""
    for instance in evidence.world.hub.instances.values():
        if any(STACK in status for status in instance.custom_statuses):
            yield f"the status of {instance.id} has a stack"
    letters = evidence.world.broker.dead_letters("rejected-runs").messages
    for message in [*evidence.alerts, *letters]:
        if STACK.encode() in message.content:
            yield f"message {message.message_id} has a stack"


def custom_status_is_small(evidence: Evidence) -> Iterator[str]:
    """At most 4 KB of UTF-16."""
    for instance in evidence.world.hub.instances.values():
        size = max((2 * len(status) for status in instance.custom_statuses), default=0)
        if size > STATUS_LIMIT_BYTES:
            yield f"{instance.id}: {size} bytes"


def _as_it_is(status: RunStatus) -> RunStatus:
    return status


def _describe_with_stack(error: LandfallError) -> Failure:
    text = "".join(traceback.format_exception(error))
    return describe(error).model_copy(update={"message": text})


def _by_the_clock(_state: Any, since: Any) -> tuple[bool, Any, int]:
    return False, since, 0


def _the_second(_first: Any, second: Any) -> Any:
    return second


FEATURE = Feature(
    changes={"notify": Change(weight=0.1, sections={"notify": {"event_grid": False}})},
    invariants=(
        every_end_is_notified_once,
        every_end_is_in_the_list_of_runs,
        messages_carry_no_stacks,
        custom_status_is_small,
    ),
    mistakes={
        "notifications are not published": Mistake(
            plant=body("publish_notification", nothing),
            found_by=every_end_is_notified_once,
            items=[UPLOAD],
        ),
        "long texts are not cut": Mistake(
            plant=lambda: mock.patch.object(run_progress, "fit_status", _as_it_is),
            found_by=custom_status_is_small,
            items=[UPLOAD, first_job("fails")],
        ),
        "errors have their stacks": Mistake(
            plant=lambda: mock.patch.object(retraining, "describe", _describe_with_stack),
            found_by=messages_carry_no_stacks,
            items=[UPLOAD, first_job("loses a node")],
        ),
        "the outbox is not flushed": Mistake(
            plant=round_without("flush_outbox"),
            found_by=nothing_waits_for_ever,
            items=[UPLOAD, Outage(service="service_bus", at=UPLOADED_AT + 200, seconds=2 * HOUR)],
        ),
        "broken runs are not reconciled": Mistake(
            plant=round_without("check_runs"),
            found_by=every_end_is_notified_once,
            items=[UPLOAD, Terminate(at=UPLOADED_AT + 340, orchestrator="retraining")],
        ),
        # The task hub's times have whole seconds.
        "the end of a run is ordered by the task hub's clock": Mistake(
            plant=both(
                lambda: mock.patch.object(run_records, "order_of", _by_the_clock),
                lambda: mock.patch.object(instances, "max", _the_second, create=True),
            ),
            found_by=every_end_is_in_the_list_of_runs,
            # In the same second, the job was submitted.
            items=[UPLOAD, Terminate(at=UPLOADED_AT + 308.5, orchestrator="retraining")],
        ),
    },
)
