"""The interface to the worker: invocations of the app's functions by the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger

Trigger = str | OrchestratorTrigger

Invoke = Callable[[str, Trigger], Awaitable[str | None]]
"""`invoke(function_name, trigger)` -> the function's encoded return value (JSON), or None.

For an orchestrator, the trigger is an `OrchestratorTrigger` and the result the orchestrator-out
document of azure-functions-durable. For an activity, they are JSON texts: its input and its result.
For an entity, they are the batch document and the entity-out document. Raises FunctionFailed if
user code raised. After any other exception, the function may not have run, and is invoked again.
"""


class FunctionFailed(Exception):
    """User code raised.

    Args:
        type_name: unqualified class name of the exception, as the Python worker reports it.
        message: the exception's text.
        stack: the formatted traceback.
    """

    def __init__(self, type_name: str, message: str, stack: str) -> None:
        super().__init__(f"{type_name}: {message}")
        self.type_name = type_name
        self.message = message
        self.stack = stack


class KnownFunctions:
    """The names that the app registered; function names are matched case-insensitively.

    Args:
        names: function names by kind: `orchestrator`, `activity`, `entity`.
    """

    def __init__(self, **names: Iterable[str]) -> None:
        self._names = {
            kind: {name.casefold(): name for name in of_kind} for kind, of_kind in names.items()
        }

    def resolve(self, kind: str, name: str) -> str | None:
        """Return the name under which a function is registered; None if it is not registered."""
        return self._names.get(kind, {}).get(name.casefold())

    def missing(self, kind: str, name: str) -> str:
        """The real host's message about a missing function."""
        known_names = self._names.get(kind, {}).values()
        names = "', '".join(known_names)
        info = (
            f"The following are the known {kind} functions: '{names}'."
            if known_names
            else f"No {kind} functions are currently registered!"
        )
        article = "a" if kind[0] not in "aeiou" else "an"
        return (
            f"The function '{name}' doesn't exist, is disabled, or is not {article} {kind} "
            f"function. Additional info: {info}"
        )
