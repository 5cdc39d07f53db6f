"""Shortens the pauses of the Service Bus SDK."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Awaitable
from types import ModuleType, SimpleNamespace
from typing import Final

# Seconds. The SDK sleeps after each of the nine frames that open a link, between polls for the
# response to a request, and in the keep-alive thread, for which a close waits.
SHORTER: Final = {0.05: 0.002, 1: 0.05}
SLEEPERS: Final = ("_servicebus_sender", "_servicebus_receiver", "_pyamqp.client")
ASYNC_SLEEPERS: Final = (
    "aio._servicebus_sender_async",
    "aio._servicebus_receiver_async",
    "_pyamqp.aio._client_async",
)


def shorten_pauses() -> None:
    """Make links in this process open and close in milliseconds instead of half a second."""

    def sleep(seconds: float) -> None:
        time.sleep(SHORTER.get(seconds, seconds))

    def sleep_async(seconds: float) -> Awaitable[None]:
        return asyncio.sleep(SHORTER.get(seconds, seconds))

    _replace(SLEEPERS, time, sleep)
    _replace(ASYNC_SLEEPERS, asyncio, sleep_async)


def _replace(names: tuple[str, ...], original: ModuleType, sleep: object) -> None:
    hurried = SimpleNamespace(**{**vars(original), "sleep": sleep})
    for name in names:
        module = importlib.import_module(f"azure.servicebus.{name}")
        setattr(module, original.__name__, hurried)
