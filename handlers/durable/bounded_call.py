"""A call that its caller stops waiting for."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")


class TookTooLong(TimeoutError):
    """The call gave no result in time. What it does may still take effect."""


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function, and stop waiting for it after some seconds. The call goes on in its thread.

    Time-outs of the SDKs are for each of many steps: that of Service Bus takes minutes to give up
    on a broker that accepts connections and never answers.

    Raises:
        TookTooLong: the time is over.
    """
    future: Future[Result] = Future()
    context = contextvars.copy_context()  # traces of the call belong to the caller's

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
