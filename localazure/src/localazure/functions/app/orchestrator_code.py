"""Finds mistakes in an orchestrator's code without running it.

Source: https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-code-constraints
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

# Methods of the SDK's context that start a step. Without `yield` the step never starts.
_BEGIN: Final = frozenset(
    {
        "call_activity",
        "call_activity_with_retry",
        "call_entity",
        "call_http",
        "call_sub_orchestrator",
        "call_sub_orchestrator_with_retry",
        "create_timer",
        "task_all",
        "task_any",
        "wait_for_external_event",
    }
)


def faults(call: Callable[..., Any]) -> list[str]:
    """Why an orchestrator cannot run; empty for one without the SDK's decorator."""
    function = getattr(call, "orchestrator_function", None)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return ["an orchestrator must not be async: write `def`, and `yield` instead of `await`"]
    return []


def forgotten_yields(call: Callable[..., Any]) -> str | None:
    """A warning about an orchestrator that calls steps without any `yield`."""
    function = getattr(call, "orchestrator_function", None)
    code = getattr(function, "__code__", None)
    if code is None or inspect.isgeneratorfunction(function):
        return None
    begun = sorted(_BEGIN.intersection(code.co_names))
    if not begun:
        return None
    return f"it has no `yield`, so that {', '.join(begun)} does nothing: write `yield` before it"
