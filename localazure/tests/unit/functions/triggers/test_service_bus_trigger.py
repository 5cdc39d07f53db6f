"""The locks that a trigger renews, and what it cannot give a function."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp.message import Message

from localazure.functions.app.signature import Binding
from localazure.functions.configuration.host_json import ServiceBusOptions
from localazure.functions.triggers.service_bus.trigger import ServiceBusTrigger


def trigger_of(binding: Binding, invoke: Any = None) -> ServiceBusTrigger:
    function: Any = SimpleNamespace(name="f", trigger=binding)
    invoker: Any = SimpleNamespace(invoke=invoke)
    settings = {"Bus": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k"}
    return ServiceBusTrigger(function, invoker, ServiceBusOptions(), settings)


def test_a_message_that_the_sdk_cannot_encode_is_told(caplog: pytest.LogCaptureFixture) -> None:
    fields = {"queueName": "q", "connection": "Bus"}
    trigger = trigger_of(Binding("m", "serviceBusTrigger", settings=fields, is_reference=True))
    received: Any = Message(value=2**40)
    token = "fc53a15f-dd66-494f-825d-ee1b7c343cfb"
    message = ServiceBusReceivedMessage(received, receiver=None, lock_token=token)
    with pytest.raises(ValueError, match=str(2**40)):
        trigger._data([message])  # pyright: ignore[reportPrivateUsage] - only it encodes
    assert "cannot give 'f' a message of q: Value supplied for int invalid" in caplog.text


@pytest.mark.parametrize(("cardinality", "renewed"), [("one", ["m1"]), ("many", [])])
async def test_locks_of_single_messages_are_renewed_and_of_batches_not(
    cardinality: str, renewed: list[str]
) -> None:
    async def fails(*_: Any) -> None:
        raise ValueError

    async def settle(*_: Any) -> None:
        pass

    registered: list[Any] = []
    link: Any = SimpleNamespace(
        receiver=SimpleNamespace(abandon_message=settle),
        renewer=SimpleNamespace(register=lambda _receiver, message: registered.append(message)),  # pyright: ignore[reportUnknownLambdaType]
        settle=settle,
    )
    fields = {"queueName": "q", "connection": "Bus", "cardinality": cardinality}
    binding = Binding("messages", "serviceBusTrigger", is_output=False, settings=fields)
    trigger = trigger_of(binding, fails)
    message: Any = "m1"
    await trigger._handle(link, [message])  # pyright: ignore[reportPrivateUsage] - only a link calls it
    assert registered == renewed
