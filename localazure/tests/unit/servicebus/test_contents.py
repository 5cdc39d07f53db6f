"""Conversion of messages between AMQP and the store, and filters."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.servicebus import contents
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.errors import AmqpError, DecodeError, NotAllowedError
from localazure.servicebus.amqp.types import Described, Symbol, Timestamp, ULong
from localazure.servicebus.configuration import CorrelationFilter
from localazure.servicebus.filters import MessageFacts, matches
from localazure.servicebus.queues import Entry, Lock, MessageState
from localazure.servicebus.store import StoredMessage


def section(code: int, value: Any) -> bytes:
    return encode(Described(ULong(code), value))


def stored(bare: bytes, **changes: Any) -> StoredMessage:
    fields: dict[str, Any] = {
        "entry": Entry(7, MessageState.ACTIVE, 2),
        "enqueued_ms": 1000,
        "ttl_ms": None,
        "priority": None,
        "delivery_annotations": {},
        "annotations": {},
        "bare": bare,
        "dead_letter_source": None,
        **changes,
    }
    return StoredMessage(**fields)


BARE = p.Properties(message_id="m", subject="s").encode() + section(0x74, {"a": 1})
BODY = section(0x75, b"body")


def test_the_bare_message_passes_byte_for_byte() -> None:
    sent = (
        p.Header(ttl_ms=5000, priority=9).encode()
        + section(0x71, {Symbol("x"): 1})
        + section(0x72, {Symbol("x-opt-partition-key"): "k"})
        + BARE
        + BODY
    )
    message = contents.parse(sent)
    assert message.bare == BARE + BODY
    assert message.ttl_ms == 5000
    assert message.message_id == "m"
    lock = Lock(uuid.UUID(int=3), Entry(7), until_ms=2000)
    kept = stored(
        message.bare,
        annotations=message.annotations,
        delivery_annotations=message.delivery_annotations,
        priority=message.priority,
    )
    payload = contents.render(kept, lock)
    assert payload.endswith(BARE + BODY)
    received = amqp_message.parse(payload)
    assert (received.header.delivery_count, received.header.priority) == (2, 9)
    assert received.delivery_annotations == {"x": 1, "x-opt-lock-token": lock.token}
    assert kept.delivery_annotations == {"x": 1}
    assert received.annotations == {
        "x-opt-partition-key": "k",
        "x-opt-sequence-number": 7,
        "x-opt-enqueued-time": 1000,
        "x-opt-message-state": 0,
        "x-opt-locked-until": 2000,
    }
    assert isinstance(received.annotations["x-opt-enqueued-time"], Timestamp)


@pytest.mark.parametrize(
    "bare",
    [BODY, p.Properties(subject="s").encode() + BODY, p.Properties(message_id="").encode() + BODY],
)
def test_a_message_without_an_id_gets_one(bare: bytes) -> None:
    first, second = (contents.ensure_message_id(contents.parse(bare)) for _ in range(2))
    assert first.message_id
    assert first.message_id != second.message_id
    assert amqp_message.properties(first.bare) == first.properties
    assert first.properties.subject == amqp_message.properties(bare).subject
    assert first.bare.endswith(BODY)


def test_a_message_with_an_id_is_not_changed() -> None:
    message = contents.parse(BARE + BODY)
    assert contents.ensure_message_id(message) is message


def test_a_lifetime_beyond_the_headers_range_comes_from_the_two_times() -> None:
    properties = p.Properties(creation_time=1000, absolute_expiry_time=2**33 + 1000)
    sent = p.Header(ttl_ms=2**32 - 1).encode() + properties.encode() + BODY
    assert contents.parse(sent).ttl_ms == 2**33


def test_ids_of_different_types_never_coincide() -> None:
    identity = uuid.UUID(int=5)
    ids = [
        contents.parse(p.Properties(message_id=item).encode() + BODY).message_id
        for item in (str(identity), identity, identity.bytes, ULong(5), "5")
    ]
    assert len(set(ids)) == len(ids)


@given(st.binary(max_size=60))
def test_arbitrary_payloads_parse_or_raise_the_typed_error(payload: bytes) -> None:
    for message_format in (0, contents.BATCH_MESSAGE_FORMAT):
        try:
            contents.parse_transfer(message_format, payload)
        except AmqpError:
            continue


@pytest.mark.parametrize(
    "payload",
    [b"x", section(0x79, 1), section(0x70, {}), section(0x72, []), section(0x73, [1] * 20)],
)
def test_malformed_messages_are_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        contents.parse(payload)


@pytest.mark.parametrize(
    ("conditions", "is_match"),
    [
        ({}, True),
        ({"Label": "s"}, True),
        ({"Label": "S"}, False),
        ({"Label": "s", "To": "x"}, False),
        ({"Properties": {"a": 1}}, True),
        ({"Properties": {"a": True}}, False),
        ({"Properties": {"b": 1}}, False),
        ({"MessageId": "m", "Properties": {"a": 1}}, True),
    ],
)
def test_filters(conditions: dict[str, Any], is_match: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    facts = MessageFacts(amqp_message.properties(BARE), BARE)
    assert matches((CorrelationFilter.model_validate(conditions),), facts) == is_match
    assert not matches((), facts)


@pytest.mark.parametrize(
    ("identity", "property_size", "words"),
    [
        ("m" * 128, 65_000, None),
        ("m" * 129, 1, "the message id has 129 characters; it may have at most 128"),
        ("m", 65_536, "the application properties have .* they may have 65536"),
    ],
)
def test_ids_and_properties_have_limits(
    identity: str, property_size: int, words: str | None
) -> None:
    properties = section(0x74, {"a": "x" * property_size})
    sent = p.Properties(message_id=identity).encode() + properties + BODY
    if words is None:
        assert contents.parse(sent).message_id == identity
        return
    with pytest.raises(NotAllowedError, match=words) as caught:
        contents.parse(sent)
    assert caught.value.condition == "amqp:not-allowed"
