"""Calls an orchestrator as the Functions worker does.

`ask` is for azure-functions-durable 1, `protocol.ask` for version 2.
"""

from __future__ import annotations

import functools
import importlib
import json
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

import azure.durable_functions

from replay_guard.history import CannotCheck, Document

Handle = Callable[[Any], str | Coroutine[Any, Any, str]]
"""What the SDK registers for an orchestrator; `async def` from 2.0.0rc3 on."""

Ask = Callable[[Handle, Document], Document]
"""What gives an orchestrator's answer to an orchestrator-in document."""

# From azure.durable_functions.models.TaskOrchestrationExecutor: when an orchestrator failed, the
# SDK's exception has this marker in its text, before the orchestrator-out document.
_MARK: Final = "$OutOfProcData$:"


@functools.cache
def ask_installed() -> Ask:
    """The `ask` for the installed version of azure-functions-durable."""
    if hasattr(azure.durable_functions, "DurableFunctionsClient"):
        return importlib.import_module("replay_guard.protocol").ask
    # Each replay parses the times of all earlier events, which would take half of its time. Times
    # are immutable, so that replays may share them.
    events: Any = importlib.import_module("azure.durable_functions.models.history.HistoryEvent")
    events.dt_parse = functools.cache(events.dt_parse)
    return ask


def ask(handle: Handle, trigger: Document) -> Document:
    """The orchestrator-out document for an orchestrator-in document, also after a failure.

    Raises:
        CannotCheck: the SDK raised an error that is not an orchestrator's failure.
    """
    try:
        with warnings.catch_warnings():
            # The SDK warns about events without a waiter, and about its own codec.
            warnings.simplefilter("ignore")
            return json.loads(cast("str", handle(json.dumps(trigger))))
    except Exception as error:  # the SDK raises Exception for every error of the orchestrator
        document = _error_document(str(error))
        if document is None:
            raise CannotCheck(f"azure-functions-durable refuses the history: {error!r}") from error
        return document


def _error_document(text: str) -> Document | None:
    """The orchestrator-out document at the end of an exception's text, None if there is none.

    The text and the document may quote other documents: the right one ends with the text.
    """
    start = text.find(_MARK)
    while start >= 0:
        start += len(_MARK)
        try:
            return json.loads(text[start:])
        except ValueError:
            start = text.find(_MARK, start)
    return None
