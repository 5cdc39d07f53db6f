"""Calls an orchestrator as the Functions worker does."""

from __future__ import annotations

import functools
import importlib
import json
import warnings
from collections.abc import Callable
from typing import Any, Final

from replay_guard.history import CannotCheck, Document

Handle = Callable[[Any], str]
"""The function that `azure.durable_functions.Orchestrator.create` returns and the worker calls."""

# Of azure.durable_functions.models.TaskOrchestrationExecutor: what precedes the orchestrator-out
# document in the text of the exception that the SDK raises when an orchestrator failed.
_MARK: Final = "$OutOfProcData$:"

# Each replay parses the times of all events before the one that it is about, which would take half
# of its time. A time is immutable, so that replays may share it.
_history_event: Any = importlib.import_module("azure.durable_functions.models.history.HistoryEvent")
_history_event.dt_parse = functools.cache(_history_event.dt_parse)


def ask(handle: Handle, trigger: Document) -> Document:
    """The orchestrator-out document to an orchestrator-in document, of a failure too.

    Raises:
        CannotCheck: the SDK raised something else than an orchestrator's failure.
    """
    try:
        with warnings.catch_warnings():
            # The SDK warns of events that nothing waits for yet, and of its own codec.
            warnings.simplefilter("ignore")
            return json.loads(handle(json.dumps(trigger)))
    except Exception as error:  # whatever the orchestrator raised, the SDK raises Exception
        document = _error_document(str(error))
        if document is None:
            raise CannotCheck(f"azure-functions-durable refuses the history: {error!r}") from error
        return document


def _error_document(text: str) -> Document | None:
    """The orchestrator-out document at the end of an exception's text, None if there is none.

    The text, and the document, may quote others: the one sought reaches to the end of the text.
    """
    start = text.find(_MARK)
    while start >= 0:
        start += len(_MARK)
        try:
            return json.loads(text[start:])
        except ValueError:
            start = text.find(_MARK, start)
    return None
