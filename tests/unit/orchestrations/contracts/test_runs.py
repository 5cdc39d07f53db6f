from __future__ import annotations

from typing import get_args

from orchestrations.contracts.run_states import (
    FIRST_STATE,
    TERMINAL_RUN_STATES,
    TRANSITIONS,
    RunEvent,
    RunNotificationKind,
    RunState,
    follow,
    notification_of,
)


def test_an_event_in_a_state_has_one_row() -> None:
    assert len({(each.source, each.event) for each in TRANSITIONS}) == len(TRANSITIONS)


def test_every_state_and_event_and_notification_is_used() -> None:
    states = {FIRST_STATE} | {each.target for each in TRANSITIONS}
    assert states == set(get_args(RunState))
    assert {each.event for each in TRANSITIONS} == set(get_args(RunEvent))
    kinds = {each.notification for each in TRANSITIONS} - {None}
    assert kinds == set(get_args(RunNotificationKind)) - {"awaiting_approval"}


def test_every_end_is_notified_and_one_can_be_reached_from_everywhere() -> None:
    for state in TERMINAL_RUN_STATES:
        assert notification_of(state)
    for state in set(get_args(RunState)) - TERMINAL_RUN_STATES:
        assert follow(state, "retry_scheduled").target == "retrying"
        assert follow(state, "permanent_error").target == "rejected"
