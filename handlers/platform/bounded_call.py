"""Call a function with a time limit."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")


class TookTooLong(TimeoutError):
    """The call returned no result in time. It may still take effect."""


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function, and wait for its result at most `seconds`. Its thread is not stopped.

    The SDKs' timeouts apply to each of many steps: with a broker that accepts connections and never
    answers, the Service Bus SDK gives up only after minutes.

    Raises:
        TookTooLong: there is no result in time.
    """
    future: Future[Result] = Future()
    context = contextvars.copy_context()  # keeps the caller's trace context

    def run() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, name="bounded call", daemon=True).start()
    done, _ = wait([future], seconds)
    if not done:
        raise TookTooLong(f"no result within {seconds:g} s")
    return future.result()
