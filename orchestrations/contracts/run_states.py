"""The states of a run, and the table of transitions that `retraining` follows.

docs/operations.md shows the table, and a contract test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

UnfinishedRunState = Literal[
    "registering",
    "provisioning",
    "waiting_for_nodes",
    "submitting",
    "queued",
    "running",
    "ending",
    "judging",
    "publishing",
]
RunState = Literal[
    UnfinishedRunState,
    "succeeded",
    "not_promoted",
    "not_needed",
    "reproduced",
    "not_reproduced",
    "held",
    "superseded",
    "cancelled",
    "retrying",
    "rejected",
    "failed",
]
RunNotificationKind = Literal[
    "started",
    "awaiting_approval",
    "succeeded",
    "not_promoted",
    "not_needed",
    "reproduced",
    "not_reproduced",
    "held",
    "superseded",
    "cancelled",
    "retrying",
    "failed",
]
GateVerdict = Literal[
    "first",
    "better",
    "misses-the-floor",
    "not-better",
    "worse-than-before",
    "may-be-luck",
    "slice-fell",
]
"""What the gate says of a model; `outcomes.rule_of_verdict` says what each means."""
RunEvent = Literal[
    "newer_dataset_claimed",
    "dataset_registered",
    "nodes_awaited",
    "nodes_admitted",
    "run_cancelled",
    "capacity_found",
    "job_submitted",
    "check_submitted",
    "job_started",
    "job_queued_again",
    "job_completed",
    "job_failed",
    "job_cancelled",
    "job_to_be_ended",
    "data_changed",
    "check_passed",
    "check_failed",
    "champion_good",
    "model_reproduced",
    "model_not_reproduced",
    "gate_not_met",
    "gate_met",
    "approval_refused",
    "model_registered",
    "retry_scheduled",
    "permanent_error",
    "out_of_attempts",
]


@dataclass(frozen=True)
class Transition:
    """One row of the table."""

    source: RunState
    event: RunEvent
    target: RunState
    notification: RunNotificationKind | None = None


def _rows(
    sources: Iterable[RunState],
    event: RunEvent,
    target: RunState,
    notification: RunNotificationKind | None = None,
) -> Iterable[Transition]:
    return (Transition(source, event, target, notification) for source in sources)


_WAITING: tuple[RunState, ...] = ("queued", "running")
_WITH_A_JOB: tuple[RunState, ...] = ("submitting", "queued", "running")
_ACTIVE: tuple[RunState, ...] = get_args(UnfinishedRunState)

FIRST_STATE: RunState = "registering"
TRANSITIONS: tuple[Transition, ...] = (
    *_rows(
        ("registering", "provisioning", "waiting_for_nodes", "judging"),
        "newer_dataset_claimed",
        "superseded",
        "superseded",
    ),
    Transition("registering", "dataset_registered", "provisioning"),
    Transition("provisioning", "nodes_awaited", "waiting_for_nodes"),
    Transition("waiting_for_nodes", "nodes_admitted", "provisioning"),
    Transition("provisioning", "capacity_found", "submitting"),
    Transition("submitting", "job_submitted", "queued", "started"),
    Transition("submitting", "check_submitted", "queued"),
    Transition("queued", "job_started", "running"),
    Transition("running", "job_queued_again", "queued"),
    *_rows(_WAITING, "job_completed", "judging"),
    *_rows(_WAITING, "job_failed", "judging"),
    *_rows(_WAITING, "job_cancelled", "cancelled", "cancelled"),
    *_rows(_ACTIVE, "run_cancelled", "cancelled", "cancelled"),
    *_rows(_WITH_A_JOB, "job_to_be_ended", "ending"),
    Transition("judging", "data_changed", "superseded", "superseded"),
    *_rows(("submitting", "judging"), "check_passed", "provisioning"),
    Transition("judging", "check_failed", "held", "held"),
    Transition("judging", "champion_good", "not_needed", "not_needed"),
    Transition("judging", "model_reproduced", "reproduced", "reproduced"),
    Transition("judging", "model_not_reproduced", "not_reproduced", "not_reproduced"),
    Transition("judging", "gate_not_met", "not_promoted", "not_promoted"),
    Transition("judging", "approval_refused", "not_promoted", "not_promoted"),
    Transition("judging", "gate_met", "publishing"),
    Transition("publishing", "model_registered", "succeeded", "succeeded"),
    *_rows(_ACTIVE, "retry_scheduled", "retrying", "retrying"),
    *_rows(_ACTIVE, "permanent_error", "rejected", "failed"),
    *_rows(_ACTIVE, "out_of_attempts", "failed", "failed"),
)

_BY_SOURCE_AND_EVENT = {(each.source, each.event): each for each in TRANSITIONS}

TERMINAL_RUN_STATES: frozenset[RunState] = frozenset(get_args(RunState)) - {
    each.source for each in TRANSITIONS
}


_NOTIFICATIONS: Mapping[RunState, RunNotificationKind] = {
    each.target: each.notification
    for each in TRANSITIONS
    if each.notification is not None and each.target in TERMINAL_RUN_STATES
}


def follow(source: RunState, event: RunEvent) -> Transition:
    """The row for an event in a state.

    Raises:
        KeyError: the table has no such row, which is a bug in the orchestrator.
    """
    return _BY_SOURCE_AND_EVENT[source, event]


def order_of(state: RunState, since: datetime) -> tuple[bool, datetime, int]:
    """The sort key of a run's states.

    A final state is the last one whatever its time: an end that was forced from outside has the
    task hub's time, in whole seconds. Other states are in order of their time, which is that of the
    run's orchestration; of one instant, in the order of the machine.
    """
    return state in TERMINAL_RUN_STATES, since, get_args(RunState).index(state)


def notification_of(state: RunState) -> RunNotificationKind:
    """The notification of a run that ends in a state.

    Raises:
        KeyError: the state is not final.
    """
    return _NOTIFICATIONS[state]
