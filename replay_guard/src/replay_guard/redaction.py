"""Exported histories: an instance as in the HTTP API, with values that are only compared hashed.

Replay gives the orchestrator its own input, results of activities and children, external events
and texts of failures. It cannot run without these, so they are kept in full. Inputs of activities,
children and entities, the output and the custom status are only compared, so their SHA-256
(`payload.digest`) is enough.

Inputs reach the history in more layers of JSON than the orchestrator wrote. They are compared as
the orchestrator passed them, so the layers are removed here:

- an activity: the extension stores the arguments of a call as a JSON array that has one element,
  the SDK's JSON text; other engines store the SDK's JSON text itself
- a child, an entity's operation: JSON text within a JSON string
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any, Final, cast

from replay_guard.history import HTTP_ACTIVITY, CannotCheck, Document
from replay_guard.payload import digest, parse

FORMAT: Final = 1

_ACTIVITY_EVENTS: Final = frozenset({"TaskScheduled", "TaskCompleted", "TaskFailed"})
_CHILD_EVENTS: Final = frozenset(
    {
        "SubOrchestrationInstanceCreated",
        "SubOrchestrationInstanceCompleted",
        "SubOrchestrationInstanceFailed",
    }
)
# Their result is the output.
_ENDED: Final = frozenset({"ExecutionCompleted", "ExecutionTerminated"})
_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)")
_REQUEST_KEYS: Final = ("id", "op", "signal")


def redact(status: Document, *, version: str | None, with_inputs: bool) -> Document:
    """The document of an exported file.

    Args:
        status: the API's answer with `showHistory`, `showHistoryOutput` and `showInput`.
        version: the instance's version, which the API does not show.
        with_inputs: whether to keep values in full that are otherwise hashed.

    Raises:
        CannotCheck: the answer has no history.
    """
    events = status.get("historyEvents")
    if not isinstance(events, list):
        raise CannotCheck(
            f"instance {status.get('instanceId')!r} has no history: it has not begun, or the "
            "answer is not one of the Durable HTTP API"
        )
    keep: Callable[[str, Any], Document] = _unredacted if with_inputs else _hashed
    lines = [cast("Document", line) for line in cast("list[Any]", events) if isinstance(line, dict)]
    arguments_in_arrays = _arguments_are_in_arrays(lines)
    started = next((line for line in lines if line.get("EventType") == "ExecutionStarted"), {})
    return {
        "replayGuard": FORMAT,
        **{
            key: status.get(key)
            for key in ("instanceId", "name", "runtimeStatus", "createdTime", "lastUpdatedTime")
        },
        "version": version,
        "input": _layer(started["Input"]) if started.get("Input") else status.get("input"),
        **keep("output", status.get("output")),
        **keep("customStatus", status.get("customStatus")),
        "times": _times([lines, status.get("customStatus"), status.get("output")]),
        "historyEvents": [
            _redact_event(line, keep, arguments_in_arrays=arguments_in_arrays) for line in lines
        ],
    }


def activity_input(stored: Any, *, arguments_in_arrays: bool) -> Any:
    """The input of an activity, from the form that the history stores."""
    value = _layer(stored)
    return parse(cast("list[str]", value)[0]) if arguments_in_arrays else value


def child_input(stored: Any) -> Any:
    """The input of a child or an entity, from the form that the history stores."""
    return _layer(_layer(stored))


def arguments_are_in_arrays(stored: list[Any]) -> bool:
    """Whether the inputs of an instance's activities are stored as arrays of one JSON text."""
    return bool(stored) and all(_is_array_of_one_json_text(_layer(each)) for each in stored)


def _arguments_are_in_arrays(lines: list[Document]) -> bool:
    return arguments_are_in_arrays(
        [
            line["Input"]
            for line in lines
            if line.get("EventType") in _ACTIVITY_EVENTS
            and line.get("Input") is not None
            and _function(line) != HTTP_ACTIVITY
        ]
    )


def _redact_event(
    line: Document, keep: Callable[[str, Any], Document], *, arguments_in_arrays: bool
) -> Document:
    kind = line.get("EventType")
    if kind == "EventRaised":  # the orchestrator reads its input
        return line
    left_out = {"Input", "Result"} if kind in _ENDED else {"Input"}
    kept = {key: value for key, value in line.items() if key not in left_out}
    stored = line.get("Input")
    if stored is None:
        return kept
    if kind in _CHILD_EVENTS:
        kept |= keep("Input", child_input(stored))
    elif kind == "EventSent" and isinstance(request := _layer(stored), dict):
        sent = cast("Document", request)
        kept["Request"] = {key: sent[key] for key in _REQUEST_KEYS if key in sent}
        kept |= keep("Input", child_input(sent.get("input")))
    elif kind in _ACTIVITY_EVENTS and not (
        arguments_in_arrays and _function(line) == HTTP_ACTIVITY  # the extension's own form
    ):
        kept |= keep("Input", activity_input(stored, arguments_in_arrays=arguments_in_arrays))
    return kept


def _times(values: Any) -> list[str]:
    """The moments that occur in values.

    If a hashed input contains the orchestrator's clock, replay finds it among these moments: the
    API does not show the clock, and a hash cannot be reversed.
    """
    return sorted(set(_TIME.findall(json.dumps(values))))


def _function(line: Document) -> Any:
    return line.get("FunctionName") or line.get("Name")


def _layer(stored: Any) -> Any:
    """Remove one layer of JSON text; a value that is not a string has no more layers."""
    return parse(stored) if isinstance(stored, str) else stored


def _is_array_of_one_json_text(value: Any) -> bool:
    match value:
        case [str(text)]:
            with contextlib.suppress(ValueError):
                json.loads(text)
                return True
        case _:
            pass
    return False


def _unredacted(key: str, value: Any) -> Document:
    return {key: value}


def _hashed(key: str, value: Any) -> Document:
    return {f"{key}Sha256": digest(value)}
