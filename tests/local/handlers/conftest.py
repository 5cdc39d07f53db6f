"""Fixtures of more than one room of the handlers."""

import time

import pytest

from tests.local.handlers.world_with_messaging import namespace, quiet_queues, world
from tests.local.handlers.zone_on_storage import storage, storage_part, zone

__all__ = ["namespace", "quiet_queues", "storage", "storage_part", "world", "zone"]


class _SleeplessTime:
    """The module `time`, in which nobody sleeps."""

    @staticmethod
    def sleep(_seconds: float) -> None:
        """Return at once."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


@pytest.fixture(autouse=True)
def sleepless_service_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Service Bus clients that open and close at once.

    The SDK sleeps for 50 ms after each of ten frames with which it opens a link, although it waits
    for the next one in its socket. When a client is closed it waits for a thread that keeps idle
    connections alive and sleeps for a second at a time.
    """
    package = "azure.servicebus"
    for module in ("_servicebus_receiver", "_servicebus_sender"):
        monkeypatch.setattr(f"{package}.{module}.time", _SleeplessTime())

    def keep_nothing_alive(_client: object) -> None:
        """No connection here is idle for long."""

    monkeypatch.setattr(f"{package}._pyamqp.client.AMQPClient._keep_alive", keep_nothing_alive)
