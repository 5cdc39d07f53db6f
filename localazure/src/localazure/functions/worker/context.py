"""The `context` argument of functions.

Source: https://learn.microsoft.com/python/api/azure-functions/azure.functions.context
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import azure.functions

from localazure.functions import logs


class _ThreadLocalStorage(threading.local):
    """The invocation id of a thread that a function starts; the thread sets it itself."""

    def __init__(self, correlation: logs.Correlation) -> None:
        self._correlation = correlation
        self._invocation_id: str | None = None

    @property
    def invocation_id(self) -> str | None:
        """The thread's invocation id. With the context's id, log lines show the invocation."""
        return self._invocation_id

    @invocation_id.setter
    def invocation_id(self, value: str | None) -> None:
        self._invocation_id = value
        if value == self._correlation.invocation_id:
            logs.invocation.set(self._correlation)


@dataclass(frozen=True)
class TraceContext:
    """The W3C trace context of the request; empty if the trigger has none."""

    trace_parent: str = ""
    trace_state: str = ""
    attributes: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def Traceparent(self) -> str:  # noqa: N802 - the worker's older spelling, still documented
        """The same as `trace_parent`."""
        return self.trace_parent

    @property
    def Attributes(self) -> dict[str, str]:  # noqa: N802 - the worker's older spelling
        """The same as `attributes`."""
        return self.attributes

    @property
    def Tracestate(self) -> str:  # noqa: N802 - the worker's older spelling, still documented
        """The same as `trace_state`."""
        return self.trace_state


@dataclass(frozen=True)
class RetryContext:
    """The state of a function's retry policy, which this host does not apply."""

    retry_count: int = 0
    max_retry_count: int = 0
    rpc_exception: Any = None


@dataclass(eq=False)
class InvocationContext:
    """The context of an invocation; as in the worker, no instance of `azure.functions.Context`."""

    correlation: logs.Correlation
    function_directory: str
    trace_context: TraceContext
    retry_context: RetryContext = RetryContext()

    def __post_init__(self) -> None:
        self.thread_local_storage = _ThreadLocalStorage(self.correlation)

    @property
    def invocation_id(self) -> str:
        """The GUID of this invocation."""
        return self.correlation.invocation_id

    @property
    def function_name(self) -> str:
        """The name of the function."""
        return self.correlation.function


class Output(azure.functions.Out[Any]):
    """An output parameter."""

    def __init__(self) -> None:
        self._value: Any = None

    def set(self, val: Any) -> None:
        """Set the value of the output."""
        self._value = val

    def get(self) -> Any:
        """The value of the output; None if it was not set."""
        return self._value
