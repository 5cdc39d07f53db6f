"""What orchestrators ask of a task, in versions 1 and 2 of azure-functions-durable."""

from __future__ import annotations

from typing import Any


def has_ended(task: Any) -> bool:
    """Whether a task has completed, failed, or been cancelled."""
    return task.is_complete if hasattr(task, "is_complete") else task.is_completed


def outcome(task: Any) -> Any:
    """The result of a task that has ended; if it has failed, its exception."""
    if getattr(task, "is_failed", False):  # version 2, which would raise the exception
        return task.get_exception()
    return task.result
