"""What the extension of SDK types gets of a message; the bytes are from the extension's tests.

Source: https://github.com/Azure/azure-functions-python-extensions/blob/dev/azurefunctions-extensions-bindings-servicebus/tests/test_servicebus.py
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp.message import Header, Message, Properties

from localazure.functions.triggers.service_bus.binding_data import binding_data

TOKEN = uuid.UUID("fc53a15f-dd66-494f-825d-ee1b7c343cfb")
FROM_AZURE = bytes.fromhex(
    "5fa153fc66dd4f49825dee1b7c343cfb"  # the lock token as a Guid of .NET
    "005370c00b05404070481908004052010053 71c12402a310"
    + b"x-opt-lock-token".hex()
    + "98fc53a15fdd66494f825dee1b7c343cfb005372"
)
TIMES = {b"x-opt-enqueued-time": 1711389793224, b"x-opt-locked-until": 1711389853239}


def received(**fields: Any) -> ServiceBusReceivedMessage:
    header = Header(ttl=1209600000, delivery_count=1)
    annotations: dict[Any, Any] = {b"x-opt-lock-token": TOKEN}
    message = Message(header=header, delivery_annotations=annotations, **fields)
    return ServiceBusReceivedMessage(message, receiver=None)


def test_it_begins_as_from_azure() -> None:
    content = binding_data(received(message_annotations=TIMES, data=[b"hello"]))
    # Azure's header omits what it does not set; the SDK's has nulls in place of it.
    assert content[:16] == FROM_AZURE[:16]
    sections = FROM_AZURE[16:].partition(b"\x00\x53\x71")
    assert content[16:19] == sections[0][:3]
    assert b"".join(sections[1:]) in content
    assert content.index(b"x-opt-lock-token") < content.index(b"x-opt-enqueued-time")


def test_the_sdk_decodes_what_it_received() -> None:
    given: dict[Any, Any] = {
        "message_annotations": {**TIMES, b"x-opt-sequence-number": 2**40},
        "properties": Properties(message_id="m", content_type="text/plain", creation_time=2**40),
        "application_properties": {b"n": 2**40, b"yes": True, b"x": 0.5, b"t": b"a", b"u": TOKEN},
        "data": [b"hel", b"lo"],
    }
    decoded = ServiceBusReceivedMessage.from_bytes(binding_data(received(**given))[16:])
    assert (decoded.message_id, decoded.content_type) == ("m", "text/plain")
    assert (decoded.lock_token, decoded.delivery_count) == (TOKEN, 1)
    assert decoded.sequence_number == 2**40
    assert decoded.application_properties == given["application_properties"]
    assert list(decoded.body) == given["data"]
    assert str(decoded.locked_until_utc) == "2024-03-25 18:04:13.239000+00:00"


@pytest.mark.parametrize("body", [{"sequence": [[1, b"a"]]}, {"value": b"a"}])
def test_other_bodies(body: dict[str, Any]) -> None:
    decoded = ServiceBusReceivedMessage.from_bytes(binding_data(received(**body))[16:])
    assert decoded.body_type == received(**body).body_type
    assert str(decoded) == str(received(**body))
