"""Records of a task hub for tests of the engine and its store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from localazure.functions.durable.engine.instance import Execution

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT = "2026-01-01T00:00:00.000000Z"
"""`NOW` in the format of histories."""

_EXECUTION = Execution(
    instance_id="i",
    execution_id="e",
    name="orch",
    version=None,
    input_json=None,
    created_at=NOW,
)


def an_execution(**changes: Any) -> Execution:
    """Return an execution of an orchestration without input."""
    return replace(_EXECUTION, **changes)
