"""The interface to the worker: invocations of the app's functions by the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from localazure.functions.durable.engine.orchestrator_trigger import OrchestratorTrigger

Trigger = str | OrchestratorTrigger

Invoke = Callable[[str, Trigger], Awaitable[str | None]]
"""`invoke(function_name, trigger)` -> the function's encoded return value (JSON), or None.

For an orchestrator the trigger is an `OrchestratorTrigger` and the answer the orchestrator-out
document of azure-functions-durable; for an activity it is the JSON of its input and of its result;
for an entity the batch document and the entity-out document. Raises FunctionFailed when user code
raised; any other exception means that the function may not have run, and it is invoked again later.
"""


class FunctionFailed(Exception):
    """User code raised.

    Args:
        type_name: class of the exception, unqualified, as the Python worker reports it.
        message: its text.
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
        names: by kind: `orchestrator`, `activity`, `entity`.
    """

    def __init__(self, **names: Iterable[str]) -> None:
        self._names = {
            kind: {name.casefold(): name for name in of_kind} for kind, of_kind in names.items()
        }

    def resolve(self, kind: str, name: str) -> str | None:
        """The name under which a function was registered, None when it was not."""
        return self._names.get(kind, {}).get(name.casefold())

    def missing(self, kind: str, name: str) -> str:
        """The real host's message about a missing function."""
        known = self._names.get(kind, {}).values()
        names = "', '".join(known)
        info = (
            f"The following are the known {kind} functions: '{names}'."
            if known
            else f"No {kind} functions are currently registered!"
        )
        article = "a" if kind[0] not in "aeiou" else "an"
        return (
            f"The function '{name}' doesn't exist, is disabled, or is not {article} {kind} "
            f"function. Additional info: {info}"
        )
