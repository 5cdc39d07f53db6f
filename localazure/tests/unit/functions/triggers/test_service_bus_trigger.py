"""The locks that a trigger renews."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from localazure.functions.app.signature import Binding
from localazure.functions.configuration.host_json import ServiceBusOptions
from localazure.functions.triggers.service_bus.trigger import ServiceBusTrigger


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
    function: Any = SimpleNamespace(name="f", trigger=binding)
    invoker: Any = SimpleNamespace(invoke=fails)
    settings = {"Bus": "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=k"}
    trigger = ServiceBusTrigger(function, invoker, ServiceBusOptions(), settings)
    message: Any = "m1"
    await trigger._handle(link, [message])  # pyright: ignore[reportPrivateUsage] - only a link calls it
    assert registered == renewed
