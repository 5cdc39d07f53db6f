"""The limit of a custom status: 16 KB of UTF-16, as the real extension counts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from localazure.functions.durable.engine import decision, episode
from localazure.functions.durable.engine.custom_status import oversize_error
from localazure.functions.durable.engine.instance import Execution, Status
from localazure.functions.durable.engine.invocation import KnownFunctions

AT = "2026-01-01T00:00:00.000000Z"
LARGEST_TEXT = 16 * 1024 // 2 - 2  # two bytes a character, less the quotes


@pytest.mark.parametrize(
    ("status", "fits"),
    [
        ("x" * LARGEST_TEXT, True),
        ("x" * (LARGEST_TEXT + 1), False),
        ("ü" * LARGEST_TEXT, True),  # json.dumps writes six characters for it
        ("😀" * (LARGEST_TEXT // 2), True),
        ("😀" * (LARGEST_TEXT // 2 + 1), False),
        ([1] * ((16 * 1024 // 2 - 1) // 2), True),  # spaces do not count
        ([1] * ((16 * 1024 // 2 - 1) // 2 + 1), False),
        (None, True),
    ],
)
def test_it_is_measured_as_utf_16_of_compact_json(status: object, *, fits: bool) -> None:
    assert (oversize_error(json.dumps(status)) is None) is fits


def test_a_larger_one_fails_the_instance() -> None:
    execution = Execution(
        instance_id="i",
        execution_id="e",
        name="orch",
        version=None,
        input_json=None,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    known = KnownFunctions()
    known.register("activity", ("act",))
    answer = {
        "isDone": False,
        "schemaVersion": 2,
        "actions": [[{"actionType": 0, "functionName": "act", "input": "1"}]],
        "customStatus": "x" * 200_000,
    }
    effects = episode.conclude(
        execution,
        [],
        episode.begin(execution, AT, started=False, messages=[]),
        decision.from_answer(json.dumps(answer)),
        known=known,
        default_version=None,
    )
    assert effects.status is Status.FAILED
    assert "must not exceed 16 KB. The current payload size is 390.6 KB" in (effects.output or "")
    assert (effects.steps, effects.custom_status) == ((), None)
