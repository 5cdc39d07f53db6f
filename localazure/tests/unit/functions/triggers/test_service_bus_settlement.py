"""Which messages a function settles by hand, and which its trigger settles after it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from localazure.functions.app.signature import Binding
from localazure.functions.configuration.host_json import ServiceBusOptions
from localazure.functions.triggers.service_bus import message as service_bus_message
from localazure.functions.triggers.service_bus.settlement import SettlementService
from localazure.functions.triggers.service_bus.trigger import ServiceBusTrigger

Settled = list[tuple[str, str]]


class Refusal(Exception):
    """What `abort` raises."""


class Context:
    async def abort(self, code: Any, text: str) -> None:
        raise Refusal(f"{code.name}: {text}")


class Receiver:
    """Notes how messages are settled; the broker has lost the lock of the message `lost`."""

    def __init__(self) -> None:
        self.settled: Settled = []

    def __getattr__(self, how: str) -> Any:
        async def settle(message: Any, **_: Any) -> None:
            if message.lock_token == "lost":
                raise MessageLockLostError
            self.settled.append((how.removesuffix("_message"), message.lock_token))

        return settle


async def handle(
    monkeypatch: pytest.MonkeyPatch, by_hand: list[tuple[str, str]], **settings: bool
) -> tuple[Settled, list[str]]:
    """How the messages a, b and lost are settled, and what the function is refused."""

    async def settle(call: Any, message: Any) -> None:
        await call(message)

    async def invoke(*_: Any) -> None:
        for how, token in by_hand:
            try:
                await getattr(service, how)(SimpleNamespace(locktoken=token), Context())
            except Refusal as refusal:
                refusals.append(str(refusal))
        if not settings.pop("returns", True):
            raise ValueError

    refusals: list[str] = []
    invoker: Any = SimpleNamespace(invoke=invoke)
    service = SettlementService(invoker)
    fields = {"queueName": "q", "connection": "Bus", "cardinality": "many", **settings}
    function: Any = SimpleNamespace(
        name="f", trigger=Binding("m", "serviceBusTrigger", settings=fields)
    )
    connection = {"Bus": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k"}
    trigger = ServiceBusTrigger(function, invoker, ServiceBusOptions(), connection, service)
    monkeypatch.setattr(service_bus_message, "many", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    link: Any = SimpleNamespace(receiver=Receiver(), settle=settle)
    messages: Any = [SimpleNamespace(lock_token=one, message_id=one) for one in ("a", "b", "lost")]
    await trigger._handle(link, messages)  # pyright: ignore[reportPrivateUsage] - only a link calls it
    with pytest.raises(Refusal, match="LockToken b not found"):
        await service.Complete(SimpleNamespace(locktoken="b"), Context())
    return link.receiver.settled, refusals


async def test_the_trigger_completes_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    settled, _ = await handle(monkeypatch, [("Defer", "a"), ("RenewMessageLock", "b")])
    assert settled == [("defer", "a"), ("renew_message_lock", "b"), ("complete", "b")]


async def test_the_trigger_abandons_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    settled, _ = await handle(
        monkeypatch, [("Complete", "a")], returns=False, autoCompleteMessages=False
    )
    assert settled == [("complete", "a"), ("abandon", "b")]


async def test_the_decorator_leaves_the_rest_to_the_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled, _ = await handle(monkeypatch, [("Abandon", "a")], autoCompleteMessages=False)
    assert settled == [("abandon", "a")]


async def test_refusals_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [("Complete", "a"), ("Complete", "a"), ("Complete", "lost"), ("Complete", "lost")]
    settled, refusals = await handle(monkeypatch, calls, autoCompleteMessages=False)
    assert settled == [("complete", "a")]
    again, *lost = refusals
    assert again == "FAILED_PRECONDITION: LockToken a not found."
    assert [one.partition(": The lock")[0] for one in lost] == ["UNKNOWN: MessageLockLostError"] * 2
